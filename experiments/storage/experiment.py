"""What the artifacts of a system weigh, from the shapes of its adapters, beside how many deletions it takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from experiments.runner import Row
from experiments.settings import Settings
from experiments.systems import rates
from s3t.core import stages_of
from s3t.orders import Setting, select
from s3t.planning.bounds import paper_bound
from s3t.planning.simulation import Deletions

GB = 1e9


class Shape(BaseModel):
    """A vision transformer's, by the names of transformers' ViTConfig."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hidden_size: int
    """Width."""
    intermediate_size: int
    """Width within the MLP."""
    num_hidden_layers: int
    """Layers."""
    num_attention_heads: int
    """Heads."""
    image_size: int
    """Pixels a side."""
    patch_size: int
    """Pixels a side."""


class Paper(BaseModel):
    """The paper's table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budgets: tuple[int, ...]
    """B's."""
    model_gb: float
    """Of the model, GB."""
    peft_gb: tuple[float, ...]
    """Of the adapters, GB."""
    rates: tuple[float, ...]
    """Deletions."""


class Config(Settings):
    """One system, under many budgets."""

    shards: int = Field(ge=1)
    """m."""
    slices: int = Field(ge=1)
    """L, a shard."""
    budgets: tuple[int, ...]
    """B's, sequences a shard."""
    trials: int = Field(ge=2)
    """Simulated systems a budget."""
    model: Shape
    """The base model's."""
    classes: int = Field(ge=1)
    """Of the head, which is a linear layer with a bias."""
    rank: int = Field(ge=1)
    """Of LoRA."""
    layers_per_slice: int = Field(ge=1)
    """Layers a block."""
    target_modules: tuple[str, ...]
    """Modules of a layer that have adapters."""
    bytes_per_number: int = Field(ge=1)
    """4 for float32."""
    paper: Paper
    """What is compared with."""


class Sizes(NamedTuple):
    """Numbers (parameters) of a model and its parts."""

    model: int
    """The base model without a head."""
    head: int
    """The head."""
    block: int
    """The adapters of one block, on the target modules."""
    block_all_linear: int
    """The same on all linear modules of its layers."""


def points(config: Config) -> list[Row]:
    """One a budget."""
    return [{"budget": budget} for budget in config.budgets]


def measure(config: Config, point: Row) -> Row:
    """Deletions, stages, and GB of all shards together.

    `gb_` and a selector's name: a block and a head for each of its stages, which is what the package stores;
    `gb_all_linear`: the same as for survival, with adapters on all linear modules; `gb_whole_adapter_...`: to compare,
    all blocks and a head.
    """
    budget = point["budget"]
    size = sizes(config.model, config.classes, config.rank, config.layers_per_slice, config.target_modules)
    chosen = {name: select(name, Setting(slices=config.slices, budget=budget)) for name in ("cyclic", "survival")}
    stages = {name: config.shards * len(stages_of([orders])) for name, orders in chosen.items()}
    whole = size.head + config.slices * size.block
    unit = config.bytes_per_number / GB
    paper = dict(zip(config.paper.budgets, zip(config.paper.peft_gb, config.paper.rates, strict=True), strict=True))
    paper_gb, paper_rate = paper.get(budget, (None, None))
    return {
        "bound": paper_bound(config.shards, config.slices, budget),
        **rates(
            [chosen["cyclic"]] * config.shards,
            Deletions.uniform(config.shards, config.slices),
            trials=config.trials,
            seed=config.seed + budget,
        ),
        "paper_rate": paper_rate,
        "stages_unshared": config.shards * config.slices * budget,
        "stages_cyclic": stages["cyclic"],
        "stages_survival": stages["survival"],
        "gb_cyclic": stages["cyclic"] * (size.block + size.head) * unit,
        "gb_survival": stages["survival"] * (size.block + size.head) * unit,
        "gb_all_linear": stages["survival"] * (size.block_all_linear + size.head) * unit,
        "gb_whole_adapter_a_sequence": config.shards * budget * whole * unit,
        "gb_whole_adapter_a_stage": config.shards * config.slices * budget * whole * unit,
        "paper_gb": paper_gb,
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Sizes, and the paper's table against ours."""
    size = sizes(config.model, config.classes, config.rank, config.layers_per_slice, config.target_modules)
    unit = config.bytes_per_number / GB
    told = [row for row in rows if row["paper_rate"] is not None]
    first = rows[0]
    return {
        "model_numbers": size.model,
        "model_gb": size.model * unit,
        "head_numbers": size.head,
        "block_numbers": size.block,
        "block_numbers_all_linear": size.block_all_linear,
        "stage_mb": 1e3 * (size.head + size.block) * unit,
        "block_mb": 1e3 * size.block * unit,
        "head_mb": 1e3 * size.head * unit,
        "whole_adapter_and_head_mb": 1e3 * (size.head + config.slices * size.block) * unit,
        "whole_models_a_stage_gb": config.shards * config.slices * (size.model + size.head) * unit,
        "paper_over_ours_gb": config.paper.peft_gb[0] / first["gb_survival"],
        "whole_over_ours_gb": first["gb_whole_adapter_a_stage"] / first["gb_survival"],
        "paper_rate_over_exact": {str(row["budget"]): row["paper_rate"] / row["rate"] for row in told},
        "paper_rate_off_at_most": max(abs(row["paper_rate"] / row["rate"] - 1) for row in told),
        # Means of n simulated systems would be as far off as the paper's, squared deviations taken together.
        "trials_that_explain_the_paper": len(told)
        / sum(((row["paper_rate"] - row["rate"]) / row["rate_std"]) ** 2 for row in told),
        "simulated_off_at_most": max(abs(row["simulated_rate"] / row["rate"] - 1) for row in rows),
        "table": [
            {
                name: row[name]
                for name in (
                    "budget",
                    "paper_gb",
                    "gb_whole_adapter_a_stage",
                    "gb_whole_adapter_a_sequence",
                    "gb_survival",
                    "gb_cyclic",
                    "gb_all_linear",
                    "paper_rate",
                    "rate",
                    "rate_std",
                    "simulated_rate",
                    "first",
                    "stages_unshared",
                    "stages_cyclic",
                    "stages_survival",
                )
            }
            for row in rows
        ],
    }


@cache
def sizes(shape: Shape, classes: int, rank: int, layers_per_slice: int, targets: tuple[str, ...]) -> Sizes:
    """Counted on a model without memory (torch's meta device); LoRA on a linear module has rank (in + out) numbers."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    from s3t.models.layers import block_modules, find_layers
    from s3t.recipe import Adapter

    with torch.device("meta"):
        model = ViTForImageClassification(ViTConfig(**shape.model_dump(), num_labels=classes))
    layers = find_layers(model, shape.num_hidden_layers)

    def block(chosen: list[str] | str) -> int:
        adapter = Adapter.model_validate({"target_modules": chosen, "layers_per_slice": layers_per_slice})
        modules = [model.get_submodule(name) for name in block_modules(model, layers, adapter, 1)]
        return sum(rank * (module.in_features + module.out_features) for module in modules)

    head = sum(parameter.numel() for parameter in model.classifier.parameters())
    return Sizes(
        model=sum(parameter.numel() for parameter in model.parameters()) - head,
        head=head,
        block=block(list(targets)),
        block_all_linear=block("all-linear"),
    )
