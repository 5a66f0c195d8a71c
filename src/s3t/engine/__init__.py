"""Where stages run. Here: one after another in this process."""

from s3t.engine.local import EngineReport, run_stages

__all__ = ["EngineReport", "run_stages"]
