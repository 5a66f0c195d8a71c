"""Deletions that a system survives: theory and simulation. Pure: numbers alone, no data."""

from s3t.planning.bound import paper_bound
from s3t.planning.deletions import Deletions
from s3t.planning.endurance import Endurance, bytes_needed, endurance
from s3t.planning.forecast import Forecast, forecast
from s3t.planning.gain import Gain, gain
from s3t.planning.plan import ASSUMED_LAYERS, Candidate, Demand, Plan, plan
from s3t.planning.repairs import Policy, simulate_repairs, training_cost
from s3t.planning.retention import Retention, full_budget_depth, retention
from s3t.planning.rounding import rounded
from s3t.planning.simulation import simulate

__all__ = [
    "ASSUMED_LAYERS",
    "Candidate",
    "Deletions",
    "Demand",
    "Endurance",
    "Forecast",
    "Gain",
    "Plan",
    "Policy",
    "Retention",
    "bytes_needed",
    "endurance",
    "forecast",
    "full_budget_depth",
    "gain",
    "paper_bound",
    "plan",
    "retention",
    "rounded",
    "simulate",
    "simulate_repairs",
    "training_cost",
]
