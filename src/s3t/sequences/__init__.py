"""The orders in which slices are trained. Pure: no torch, no data, declared inputs alone."""

from s3t.sequences.bms import bms
from s3t.sequences.choice import (
    DEFAULT_SELECTOR,
    KNOW_NO_PRIOR,
    SELECTORS,
    no_selector,
    orders_of_shards,
    prior_rows,
    select,
    selector_problem,
)
from s3t.sequences.conditional import conditional
from s3t.sequences.cyclic import cyclic, cyclic_adjacent
from s3t.sequences.full import full
from s3t.sequences.random_orders import random_orders
from s3t.sequences.score import mean_distance, scores
from s3t.sequences.selector import Order, Setting
from s3t.sequences.sorted_cyclic import sorted_cyclic
from s3t.sequences.survival import expected_worth, survival

__all__ = [
    "DEFAULT_SELECTOR",
    "KNOW_NO_PRIOR",
    "SELECTORS",
    "Order",
    "Setting",
    "bms",
    "conditional",
    "cyclic",
    "cyclic_adjacent",
    "expected_worth",
    "full",
    "mean_distance",
    "no_selector",
    "orders_of_shards",
    "prior_rows",
    "random_orders",
    "scores",
    "select",
    "selector_problem",
    "sorted_cyclic",
    "survival",
]
