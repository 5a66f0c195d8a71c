"""What a system survives: theory and simulation. Pure: numbers alone, no data."""

from s3t.planning.deletion_rate import deletion_rate, first_failure, paper_bound, sisa_bound
from s3t.planning.deletions import Deletions
from s3t.planning.endurance import Endurance, Lasting, bytes_needed, endurance
from s3t.planning.forecast import Forecast, forecast
from s3t.planning.gain import Gain, gain
from s3t.planning.optimiser_steps import optimiser_steps, steps_wanted
from s3t.planning.plan import ASSUMED_LAYERS, Candidate, Demand, Plan, plan
from s3t.planning.repairs import Policy, RepairedSimulation, simulate_repairs, training_cost
from s3t.planning.retention import Retention, full_budget_depth, papers_retention, retention
from s3t.planning.rounding import rounded
from s3t.planning.simulation import Simulation, simulate
from s3t.planning.waiting import Waiting

__all__ = [
    "ASSUMED_LAYERS",
    "Candidate",
    "Deletions",
    "Demand",
    "Endurance",
    "Forecast",
    "Gain",
    "Lasting",
    "Plan",
    "Policy",
    "RepairedSimulation",
    "Retention",
    "Simulation",
    "Waiting",
    "bytes_needed",
    "deletion_rate",
    "endurance",
    "first_failure",
    "forecast",
    "full_budget_depth",
    "gain",
    "optimiser_steps",
    "paper_bound",
    "papers_retention",
    "plan",
    "retention",
    "rounded",
    "simulate",
    "simulate_repairs",
    "sisa_bound",
    "steps_wanted",
    "training_cost",
]
