"""Methods: what each stage trains, and which stages make up a model. Other rooms know no method by its name. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from s3t.core.places import Order

if TYPE_CHECKING:
    from s3t.core.stages import SliceKind

Trainable: TypeAlias = Literal["adapter", "all"]
"""Trained parameters: adapters on the base model, or all its parameters."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """Method that a recipe names: a block a slice (the paper's), the blocks of the stages before frozen; or one block
    for all stages, the whole adapter or the model itself. Or no model is trained, and a head is solved.

    Blocks are parts of the model that stages train, numbered from 1 at the top. A depth is a number of slices. Every
    stage starts from the model of the prefix one slice shorter. If its block is in that model, it trains it on; else it
    adds it, and the blocks of that model stay as they are.
    """

    name: str
    replay: float = 1.0
    """The share of the earlier slices' records that a stage sees again, 0 to 1."""
    direction: Literal["top-down", "bottom-up"] = "top-down"
    """Block that the first stage trains: the top one or the bottom one."""
    trainable: Trainable = "adapter"
    one_block: bool = False
    """True if every stage goes on with the block of the last; else the next stage trains the next block."""
    one_order: bool = False
    """True if a shard's slices are trained in one order; else in the recipe's budget of orders."""
    one_shard: bool = False
    """True if there is one shard."""
    one_slice: bool = False
    """True if a shard has one slice."""
    trains: bool = True
    """True if stages train a model; else what is made of each slice answers alone."""
    of_slices: SliceKind | None = None
    """Kind of the artifact that every slice has of its own, beside the trained stages or in their place."""

    def __str__(self) -> str:
        return self.name

    @property
    def has_adapters(self) -> bool:
        """True if stages train adapters; else the model itself."""
        return self.trainable == "adapter"

    @property
    def width(self) -> Literal["layers_per_slice", "layers"]:
        """Field of the recipe's `adapter` with the number of layers of a block. The other field has no effect."""
        return "layers" if self.one_block else "layers_per_slice"

    @property
    def top_down(self) -> bool:
        """True if the layers below a stage's block are the base model's, and its number does not depend on L."""
        return self.direction == "top-down"

    def blocks(self, slices: int) -> int:
        """Number of blocks of a whole model."""
        return 1 if self.one_block else slices

    def trained(self, depth: int, slices: int) -> int:
        """Block that a stage trains, by its depth and the slices of a shard."""
        return 1 if self.one_block else depth if self.top_down else slices + 1 - depth

    def links(self, prefix: Order) -> tuple[Order, ...]:
        """Prefixes whose stages together are the model of a prefix: one for each block, the prefix itself last.

        >>> method_named("s3t").links((2, 0)), method_named("sisa").links((2, 0))
        (((2,), (2, 0)), ((2, 0),))
        """
        first = len(prefix) if self.one_block else 1
        return tuple(prefix[:depth] for depth in range(first, len(prefix) + 1))

    def described(self) -> str:
        """Name and options in a few words: `s3t, replay 0.5, bottom-up`."""
        parts = [self.name]
        if not self.has_adapters:
            parts.append("all parameters")
        if self.replay != 1:
            parts.append(f"replay {self.replay:g}")
        if not self.top_down:
            parts.append(self.direction)
        return ", ".join(parts)

    def declared(self) -> dict[str, Any]:
        """The recipe's `method`, every option filled in."""
        return {name: getattr(self, name) for name in ("name", "replay", "direction", "trainable")}

    def key_part(self, slices: int) -> dict[str, Any]:
        """Part of the method that decides a stage's tensors, JSON-compatible."""
        numbered_from_below = {} if self.top_down else {"slices": slices}
        return self.declared() | numbered_from_below

    def replayed(self, records: int) -> int:
        """Estimated number of the earlier slices' records that a stage sees again."""
        return round(self.replay * records)


_of_one_block = partial(Method, one_block=True, one_order=True)

METHODS: Mapping[str, Callable[..., Method]] = {
    "s3t": partial(Method, name="s3t"),
    # Bourtoule et al. 2021: every stage trains the whole adapter on, or all parameters.
    "sisa": partial(_of_one_block, name="sisa"),
    # Yan et al. 2022: sisa, and beside it class means of the base model's features.
    "protosisa": partial(_of_one_block, name="protosisa", of_slices="prototypes"),
    # One stage, on the one slice of the one shard.
    "full": partial(_of_one_block, name="full", one_shard=True, one_slice=True),
    # No training: one linear head over all slices, solved from sums on the base model's features.
    "ridge": partial(_of_one_block, name="ridge", one_shard=True, trains=False, of_slices="statistics"),
}
"""Constructors of methods, by name, from the options that a recipe gives."""


def method_named(name: str, **options: Any) -> Method:
    """A method with the options that a recipe gives; a ValueError says which of them it does not have."""
    method = METHODS[name](**options)
    if method.one_block and (method.replay != 1.0 or not method.top_down):
        raise ValueError(f"replay and direction belong to s3t; take them out or set another name than {name}")
    if not method.has_adapters and not method.trains:
        raise ValueError(f"trainable: {name} trains nothing; take it out")
    if not method.has_adapters and not method.one_block:
        raise ValueError("trainable: all belongs to sisa, protosisa and full; s3t freezes blocks, and has adapters")
    return method
