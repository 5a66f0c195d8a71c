"""One stage (paper, Section 3.2 and Algorithm 2): train block k and the head on slices 1..k. Blocks above are frozen,
blocks below absent.

Everything starts fresh: optimiser, schedule and random generators belong to the stage. Its head continues from the
parent's; that of a first stage is drawn from the seed. Departure from the paper's code: the head is part of a
stage's artifact, for a shallower prefix must not serve with a head that has seen deeper slices.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from transformers import get_scheduler

from s3t.errors import TrainingError
from s3t.events import Progress, WorkStep, silent
from s3t.models.adapters import StageTensors
from s3t.models.blocks import BlockTensors, Model
from s3t.models.encoders import Encoder
from s3t.models.passes import HEAD_TOKENS, Batch, Packing, Passes, Start, pack
from s3t.recipe import Recipe, TrainingSettings
from s3t.tasks import Target
from s3t.training.examples import Examples, cut, epoch_batches
from s3t.training.numerics import exact_numerics


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Records of a pass, on the model's device."""

    batch: Batch
    start: Start | None
    targets: Tensor
    packing: Packing | None


def learn(passes: Passes, target: Target, ready: Ready, *, total: int, checkpointing: bool) -> Tensor:
    """Add the gradients of a pass to those of its step, which has `total` answers; the sum of its answers' losses.

    A language model's logits are never in memory whole. Some hundred tokens at a time pass the output layer, forward
    and backward. The gradient of the last layer's states then goes through the layers at once.
    """
    answers = len(ready.targets)
    if not target.over_vocabulary:
        logits = passes.logits(ready.batch, ready.start, packing=ready.packing, checkpointing=checkpointing)
        loss = target.loss(logits, ready.targets)
        (loss if answers == total else loss * (answers / total)).backward()  # type: ignore[no-untyped-call, unused-ignore]
        return loss.detach() * answers
    summed = torch.zeros((), device=ready.targets.device)
    if not answers:
        return summed  # the records were cut before the first token that is learned
    reached = passes.reached(ready.batch, ready.start, packing=ready.packing, checkpointing=checkpointing)
    gradients = []
    parts = zip(torch.split(reached.detach(), HEAD_TOKENS), torch.split(ready.targets, HEAD_TOKENS), strict=True)
    for some, right in parts:
        states = some.requires_grad_()
        loss = target.loss(passes.over_vocabulary(states), right) * (len(right) / total)
        (gradient,) = torch.autograd.grad(loss, states)
        gradients.append(gradient)
        summed += loss.detach() * total
    reached.backward(torch.cat(gradients))  # type: ignore[no-untyped-call, unused-ignore]
    return summed


class Keeper(Protocol):
    """Stores states of a stage's training, and finds the last one after a kill."""

    def found(self) -> bytes | None: ...

    def due(self) -> bool: ...

    def keep(self, content: bytes) -> None: ...


def train_stage(
    model: Model,
    block: int,
    *,
    frozen: BlockTensors,
    start: StageTensors | None = None,
    examples: Examples,
    target: Target,
    training: TrainingSettings,
    seed: Callable[[str], int],
    progress: Progress = silent,
    checkpoints: Keeper | None = None,
) -> tuple[StageTensors, int]:
    """Train a block, 1 for the top one, and the head; both, and the number of steps, 0 where there is no record.

    `frozen` are the blocks that were trained before, in that order. `start` is the initial block and head, from an
    earlier stage; without it the block is drawn, and the head is that of the last frozen block's stage, or drawn. The
    base model is restored at the end.
    """
    device = model.base.device
    devices = [device] if device.type == "cuda" else []
    with exact_numerics(device, training), torch.random.fork_rng(devices=devices):
        if not frozen and start is None:
            model.reset_head(seed=seed("head"))
        with model.mounted(frozen) as mount:
            torch.manual_seed(seed("block"))
            mount.add_block(block)
            if start is not None:
                mount.load_block(block, start.block)
                mount.load_head(start.head)
            parameters = mount.thaw()
            torch.manual_seed(seed("dropout"))
            groups = _groups(parameters, set(model.base.head_parameters().values()), training)
            steps = _fit(model.passes, groups, parameters, examples, target, training, seed, progress, checkpoints)
            if not all(bool(parameter.isfinite().all()) for parameter in parameters):
                raise TrainingError(
                    "training diverged: the block or the head holds numbers that are not finite; nothing is stored. "
                    f"Lower training.learning_rate ({training.learning_rate}) in a new run"
                )
            mount.check_isolation()
            return mount.own_tensors(), steps


def seconds_a_record(model: Model, encoder: Encoder, recipe: Recipe, rows: pa.Table) -> Sequence[float]:
    """Seconds in which a stage of each depth, 1 to L, goes once through a record: at both ends measured on some, the
    second time; between them on a line. The blocks above are left out, and what fills the trunk's cache.
    """
    device, passes, found = model.base.device, model.passes, []
    batch = {name: _moved(tensor, device) for name, tensor in encoder.collate(encoder.encode(rows)).items()}
    devices = [device] if device.type == "cuda" else []
    with exact_numerics(device, recipe.training), torch.random.fork_rng(devices=devices):
        for depth in (1, recipe.partition.slices):
            block = recipe.trained_block(depth)
            border = model.border(block)
            with model.mounted({}) as mount:
                mount.add_block(block)
                mount.thaw()
                with torch.no_grad():
                    states = passes.states(batch, [border])[border] if recipe.training.trunk_cache else None
                for _ in range(2):
                    began = time.perf_counter()
                    summed = passes.logits(batch, None if states is None else Start(border, states)).sum()
                    summed.backward()  # type: ignore[no-untyped-call, unused-ignore]
                    if device.type == "cuda":
                        torch.cuda.synchronize(device)
                    seconds = time.perf_counter() - began
            found.append(seconds / rows.num_rows)
    return [float(each) for each in np.linspace(found[0], found[-1], recipe.partition.slices)]


def _groups(
    parameters: Iterable[nn.Parameter], head: Container[nn.Parameter], training: TrainingSettings
) -> list[dict[str, Any]]:
    """Parameters that have a learning rate and a weight decay in common, as AdamW takes them."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in parameters:
        rate = training.head_learning_rate if parameter in head else None
        decay = training.weight_decay if parameter.ndim > 1 else 0.0
        groups.setdefault((rate or training.learning_rate, decay), []).append(parameter)
    return [{"params": group, "lr": rate, "weight_decay": decay} for (rate, decay), group in groups.items()]


def _fit(
    passes: Passes,
    groups: list[dict[str, Any]],
    parameters: Sequence[nn.Parameter],
    examples: Examples,
    target: Target,
    training: TrainingSettings,
    seed: Callable[[str], int],
    progress: Progress,
    checkpoints: Keeper | None,
) -> int:
    count, device = len(examples), passes.base.device
    an_epoch = math.ceil(count / training.batch_size)
    total = training.epochs * an_epoch
    optimizer = torch.optim.AdamW(groups, fused=True)
    name = "constant_with_warmup" if training.schedule == "constant" else training.schedule
    # Rounded down: the first step of a warm-up has rate 0, and a stage of few steps would learn nothing.
    warmup = math.floor(training.warmup * total)
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=total)
    so_far = SoFar(torch.zeros((), device=device))
    if checkpoints is not None and (found := checkpoints.found()) is not None:
        so_far = _go_on(found, parameters, optimizer)
        del found
        scheduler.last_epoch = so_far.steps
        for group, base, share in zip(optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True):
            group["lr"] = base * share(so_far.steps)
        for earlier in so_far.losses:
            progress(WorkStep(count=count, loss=None if math.isnan(earlier) else earlier))
    packed = "packing" in training.shortcuts
    for epoch in range(so_far.steps // max(1, an_epoch), training.epochs):
        order = epoch_batches(count, batch_size=training.batch_size, seed=seed(f"batches {epoch}"))
        if done := so_far.steps - epoch * an_epoch:
            progress(WorkStep(count=sum(map(len, order[:done]))))
            order = order[done:]
        augment = seed(f"augment {epoch}")
        passed = [cut(numbers, training.micro_batch or len(numbers)) for numbers in order]
        ready = _on_device(examples, [part for parts in passed for part in parts], device, augment, packed=packed)
        for numbers, parts in zip(order, passed, strict=True):
            total = examples.count_answers(numbers)
            for one in itertools.islice(ready, len(parts)):
                so_far.summed += learn(passes, target, one, total=total, checkpointing=training.checkpointing)
            if training.max_grad_norm is not None:
                nn.utils.clip_grad_norm_(parameters, training.max_grad_norm)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            so_far.answers += total
            so_far.steps += 1
            loss = so_far.end_epoch() if numbers is order[-1] else None
            progress(WorkStep(count=len(numbers), loss=loss))
            if checkpoints is not None and checkpoints.due():
                checkpoints.keep(_state(so_far, parameters, optimizer))
    return so_far.steps


@dataclass
class SoFar:
    """What the training of a stage has done so far."""

    summed: Tensor
    """Losses of this epoch's answers. Read once an epoch: at every step a GPU would be waited for."""
    answers: int = 0
    steps: int = 0
    losses: list[float] = field(default_factory=list)
    """Mean loss of each finished epoch; nan if it had no answers."""

    def end_epoch(self) -> float | None:
        loss = self.summed.item() / self.answers if self.answers else None
        self.losses.append(math.nan if loss is None else loss)
        self.summed, self.answers = torch.zeros_like(self.summed), 0
        return loss


def _state(so_far: SoFar, parameters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer) -> bytes:
    """All that the next step depends on and that does not follow from the number of steps."""
    device = so_far.summed.device
    tensors = {
        "summed": so_far.summed,
        "answers": torch.tensor(so_far.answers),
        "steps": torch.tensor(so_far.steps),
        "losses": torch.tensor(so_far.losses, dtype=torch.float64),
        "generator": torch.get_rng_state(),
    }
    if device.type == "cuda":
        tensors["generator of the device"] = torch.cuda.get_rng_state(device)
    for number, parameter in enumerate(parameters):
        tensors[str(number)] = parameter.detach()
        tensors |= {f"{number} {name}": value for name, value in optimizer.state[parameter].items()}
    return save({name: tensor.to("cpu", copy=True).contiguous() for name, tensor in tensors.items()})


def _go_on(content: bytes, parameters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer) -> SoFar:
    """Put parameters, optimiser and generators in the state of a checkpoint."""
    tensors, device = load(content), parameters[0].device
    for number, parameter in enumerate(parameters):
        with torch.no_grad():
            parameter.copy_(tensors.pop(str(number)))
    for name in [name for name in tensors if name[0].isdigit()]:
        of, _, part = name.partition(" ")
        optimizer.state[parameters[int(of)]][part] = tensors[name].to(device)
    torch.set_rng_state(tensors["generator"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(tensors["generator of the device"], device)
    return SoFar(
        tensors["summed"].to(device), int(tensors["answers"]), int(tensors["steps"]), tensors["losses"].tolist()
    )


def _on_device(
    examples: Examples, order: Sequence[Sequence[int]], device: torch.device, seed: int, *, packed: bool
) -> Iterator[Ready]:
    """Each batch with its start, targets and, if wanted, packing.

    For a GPU the next one is on its way while one is computed on.
    """
    waiting = None
    for numbers in order:
        batch, start = examples.batch(numbers, seed=seed)
        packing = pack(batch["attention_mask"]) if packed else None
        ready = Ready(
            batch={name: _moved(tensor, device) for name, tensor in batch.items()},
            start=None if start is None else Start(start.border, _moved(start.states, device)),
            targets=_moved(examples.targets(numbers), device),
            packing=None if packing is None else Packing(*(_moved(tensor, device) for tensor in packing)),
        )
        if device.type != "cuda":
            yield ready
            continue
        if waiting is not None:
            yield waiting
        waiting = ready
    if waiting is not None:
        yield waiting


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    if device.type != "cuda":
        return tensor.to(device)
    if 0 in tensor.stride():  # a dummy; to pin it would fill memory
        return torch.zeros((), dtype=tensor.dtype, device=device).expand(tensor.shape)
    return tensor.pin_memory().to(device, non_blocking=True)
