"""Execution of stages: one after another in this process, or shared among worker processes of this machine."""

from s3t.engine.local import cores_worth, run_stages, usable_cores
from s3t.engine.pool import Placement, run_in_pool

__all__ = ["Placement", "cores_worth", "run_in_pool", "run_stages", "usable_cores"]
