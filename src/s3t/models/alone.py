"""The settings and generators that torch and transformers keep for a whole process, whatever the thread."""

from __future__ import annotations

import threading

ALONE = threading.RLock()
"""Held by code that changes the settings or draws from the generators: a stage while it trains, a pass, the loading of
a model. (transformers sets default types, and draws weights that a checkpoint lacks.) Two at a time would change each
other's bits."""
