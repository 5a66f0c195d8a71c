"""Settings of the pre-training."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from experiments.settings import Settings


class Shape(BaseModel):
    """Of the model, as `transformers.LlamaConfig` names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hidden_size: int = Field(ge=1)
    """Width."""
    intermediate_size: int = Field(ge=1)
    """Width between the matrices of a feed-forward module."""
    num_hidden_layers: int = Field(ge=1)
    """Layers."""
    num_attention_heads: int = Field(ge=1)
    """Heads; each has keys and values of its own."""


class Config(Settings):
    """What decides the model's bytes, on machines of one kind."""

    made_up: bool
    """Made-up records in the place of real ones: that it works, no measurement."""
    vocabulary: int = Field(ge=260)
    """Pieces of the tokenizer, special ones and bytes among them."""
    model: Shape
    """Sizes."""
    length: int = Field(ge=2)
    """Tokens of a chunk, and positions of the model."""
    batch_size: int = Field(ge=1)
    """Chunks of a step."""
    epochs: int = Field(ge=1)
    """Over instructions."""
    text_epochs: int = Field(ge=0)
    """Of them, the first, also over other texts."""
    learning_rate: float = Field(gt=0)
    """Peak."""
    warmup: int = Field(ge=1)
    """Steps in which the learning rate rises."""
    weight_decay: float = Field(ge=0)
    """Of matrices."""
    max_grad_norm: float = Field(gt=0)
    """Gradients are clipped to it."""
    threads: int = Field(ge=1)
    """Of torch."""
    evaluations: int = Field(ge=1)
    """On held-out records, in equal distances while it trains."""
