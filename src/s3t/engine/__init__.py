"""Execution of stages: one after another in this process, or shared among workers of this machine or of a cluster."""

from s3t.engine.launcher import Launcher, run_on
from s3t.engine.local import cores_worth, run_stages, usable_cores
from s3t.engine.pool import Placement, Processes
