"""Where stages run: one after another in this process, or shared among worker processes of this machine."""

from s3t.engine.cores import cores_worth, usable_cores
from s3t.engine.local import EngineReport, run_stages
from s3t.engine.workers import Seat, run_in_workers

__all__ = ["EngineReport", "Seat", "cores_worth", "run_in_workers", "run_stages", "usable_cores"]
