"""The settings and generators that torch and transformers keep for a whole process, whatever the thread."""

from __future__ import annotations

import threading

ALONE = threading.RLock()
"""Held by code that changes or draws from them: a stage while it trains, a pass, a model while it is loaded
(transformers sets default types, and what a checkpoint lacks is drawn). Two at a time would change each other's
bits."""
