"""Memory and operations of training a Llama with s3t, by arithmetic alone.

A stage trains the block of layers below those of the stages before it. Its backward pass goes from the top down to its
own lowest layer. So the deepest stage needs most. Sizes are bytes; a token is a token of a pass, padding included.

Saved for the backward pass, in bfloat16 with fused attention, by a layer of width h and inner width i, with keys of
width k, for each token:

    two norms in float32, with their scales        8 h + 8
    queries and the attention's output             4 h
    keys and values; the softmax's sums            4 k + 4 heads
    gate, its activation, and the other half       6 i

and by LoRA of rank r on all seven modules 4 h + 2 i + 14 r more; with dropout its dropped inputs and their masks
instead: 3 bytes for each input of each module, with a byte a mask as on GPUs. `tests/benchmarks/test_llama_memory.py`
compares all that with what torch saves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Bits = Literal["none", "8bit", "4bit"]
BITS: tuple[Bits, ...] = ("none", "8bit", "4bit")
HEAD_TOKENS = 512
LOGIT_BYTES = 16
"""Bytes a logit at most: itself and its gradient in bfloat16, and three float32 tensors of the loss."""


@dataclass(frozen=True, kw_only=True)
class Llama:
    """Shapes of a Llama.

    Attributes:
        width: of hidden states.
        inner: width inside the feed-forward part.
        keys: width of all keys together.
        tied: True if the output layer is the embedding.
    """

    width: int
    inner: int
    layers: int
    heads: int
    keys: int
    vocabulary: int
    tied: bool = False

    @property
    def modules(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of a layer's linear modules: q, k, v, o, gate, up, down."""
        h, i, k = self.width, self.inner, self.keys
        return ((h, h), (h, k), (h, k), (h, h), (h, i), (h, i), (i, h))

    @property
    def layer_weights(self) -> int:
        """Numbers in a layer's linear modules."""
        return sum(inputs * outputs for inputs, outputs in self.modules)

    @property
    def outside(self) -> int:
        """Numbers that are never packed: embeddings, output layer, norms."""
        tables = 1 if self.tied else 2
        return tables * self.vocabulary * self.width + (2 * self.layers + 1) * self.width

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.layers * self.layer_weights + self.outside


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a recipe says.

    Attributes:
        slices: stages of an order.
        block: layers a slice.
        tokens: of a pass: records times length.
        records: of a pass.
        mask_bytes: of a number of a dropout's mask: 1 on GPUs, 2 on CPUs in bfloat16.
    """

    slices: int
    block: int
    rank: int
    dropout: bool
    checkpointing: bool
    tokens: int
    records: int
    mask_bytes: int = 1


def base_bytes(model: Llama, bits: Bits) -> int:
    """Weights of the base, and scales of packed ones; the rest in bfloat16."""
    if bits == "none":
        return 2 * model.parameters
    layer = sum(_packed(inputs * outputs, outputs, bits) for inputs, outputs in model.modules)
    return 2 * model.outside + model.layers * layer


def _packed(numbers: int, rows: int, bits: Bits) -> int:
    if bits == "8bit":
        return numbers + 4 * rows
    scales = -(-numbers // 64)
    tables = 4 * (16 + 256 + 1)  # the 16 values, the 256 of the scales, and their offset
    return -(-numbers // 2) + scales + 4 * -(-scales // 256) + tables


def adapter_numbers(model: Llama, training: Training) -> int:
    """Trained numbers of a stage."""
    return training.block * training.rank * sum(inputs + outputs for inputs, outputs in model.modules)


def trained_bytes(model: Llama, training: Training) -> int:
    """A block, its gradients, and AdamW's two moments, in float32."""
    return 16 * adapter_numbers(model, training)


def frozen_bytes(model: Llama, training: Training, *, merged: bool) -> int:
    """Blocks above that of the deepest stage, in bfloat16: merged into copies of the weights, or beside them."""
    blocks = training.slices - 1
    if merged:
        return blocks * training.block * 2 * model.layer_weights
    return blocks * 2 * adapter_numbers(model, training)


def frozen_layer(model: Llama) -> int:
    """Bytes that a layer without a trained adapter saves for a token."""
    return 12 * model.width + 8 + 4 * model.keys + 4 * model.heads + 6 * model.inner


def trained_layer(model: Llama, training: Training) -> int:
    """The same of one with a trained adapter."""
    inner = 14 * training.rank
    if not training.dropout:
        return frozen_layer(model) + inner + 4 * model.width + 2 * model.inner
    inputs = sum(inputs for inputs, _ in model.modules)
    return frozen_layer(model) + inner + (2 + training.mask_bytes) * inputs


def saved_bytes(model: Llama, training: Training, *, depth: int) -> int:
    """Saved for the backward pass of a stage of some depth, without checkpoints, by a pass that starts at its block."""
    lowest = 4 * model.width + 4  # nothing below the block needs a gradient, so its first norm saves nothing
    if training.dropout:
        lowest += 3 * training.mask_bytes * model.width
    layers = training.block * (trained_layer(model, training) + (depth - 1) * frozen_layer(model))
    sides = model.width // model.heads
    length = training.tokens // training.records
    copies = sum(inputs + outputs for inputs, outputs in model.modules) * training.block - 3 * model.width
    return training.tokens * (layers - lowest + 1) + 4 * sides * length + 2 * training.rank * copies


def activation_bytes(model: Llama, training: Training) -> int:
    """Saved by the deepest stage; with checkpoints, each layer's input, and one layer's inside."""
    if not training.checkpointing:
        return saved_bytes(model, training, depth=training.slices)
    inputs = training.slices * training.block * 2 * model.width
    return training.tokens * (inputs + trained_layer(model, training))


def logit_bytes(model: Llama) -> int:
    """Logits of the tokens that pass the output layer at a time, with all that the loss makes of them, at most."""
    return LOGIT_BYTES * HEAD_TOKENS * model.vocabulary


def unpacked_bytes(model: Llama, bits: Bits) -> int:
    """The largest weight of a product, unpacked."""
    return 0 if bits == "none" else 2 * max(inputs * outputs for inputs, outputs in model.modules)


def trunk_bytes(model: Llama, training: Training, *, tokens: int) -> int:
    """Largest trunk cache that a stage needs, in bfloat16; the embeddings are no trunk.

    Args:
        tokens: of all slices together.
    """
    lowest = training.slices * training.block == model.layers
    slices = training.slices - 1 if lowest else training.slices
    return 2 * model.width * tokens * slices // training.slices


def operations(model: Llama, training: Training, *, tokens: int, epochs: int) -> int:
    """Operations of all stages of one order. A multiplication and an addition are two; attention is left out.

    Args:
        tokens: of all slices together, each of which passes the output layer.
    """
    layer, output = 2 * model.layer_weights, 2 * model.width * model.vocabulary
    total = 0
    for depth in range(1, training.slices + 1):
        seen = tokens * depth // training.slices
        passes = 3 if training.checkpointing else 2  # forward, backward, and forward again
        total += seen * epochs * (depth * training.block * layer * passes + 2 * output)
        total += seen * (model.layers - depth * training.block) * layer
    return total
