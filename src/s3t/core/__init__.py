"""The system as plain values: places, stages and their keys, growth and its costs, inventories, methods. Pure."""

from s3t.core.growth import (
    AsNeeded,
    Chains,
    FixedOrders,
    Forests,
    Growth,
    StageCosts,
    depths_after_hit,
    lacking,
    leaves,
    prefixes_of,
    without,
)
from s3t.core.inventory import Inventory, after_deletion, plan_deletion, tainted_by
from s3t.core.methods import METHODS, Method, Trainable, method_named
from s3t.core.places import Order, Place, Secret, place_of, slices_among
from s3t.core.stages import (
    BASE_MODEL,
    KeyInputs,
    Kind,
    SliceKind,
    Stage,
    by_kind,
    head_of,
    model_stages,
    of_slice,
    stage_key,
    stage_seed,
    stages_of,
)
