"""The orders in which slices are trained. Pure: no torch, no data, declared inputs alone."""

from s3t.core import Order
from s3t.orders.choice import (
    DEFAULT_SELECTOR,
    KNOW_NO_PRIOR,
    SELECTORS,
    no_selector,
    orders_of_shards,
    prior_rows,
    select,
    selector_problem,
)
from s3t.orders.rules import bms, conditional, cyclic, cyclic_adjacent, full, random_orders, sorted_cyclic
from s3t.orders.setting import Setting, mean_distance, scores
from s3t.orders.survival import expected_worth, survival
