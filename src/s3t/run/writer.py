"""Texts that a run's language model writes, whole or as they come."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from s3t.errors import InputError, OvertakenError
from s3t.events import Progress, WorkStep, silent, telling
from s3t.ledger.presence import Overtaken, Work
from s3t.prediction.answers import Prefixes
from s3t.records.ingest import IngestedInputs, Inputs, ingest_prompts
from s3t.results.answers import Texts
from s3t.run.answerer import Answerer, State, members_of, uses_of, watched
from s3t.run.pending import PendingTexts, SharedBatch
from s3t.tasks.targets import rouge_scorer, text_metrics
from s3t.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from s3t.models.language import LanguageEncoder
    from s3t.prediction.generation import Continuation, Finish, Likelihood, Piece, Sampling, WrittenToken


@dataclass(frozen=True)
class Writer:
    """Writes with what is alive in one run. A deletion that takes a stage that writes makes texts be begun anew."""

    answerer: Answerer

    def generate(self, prompts: Inputs, prefixes: Prefixes | None, sampling: Sampling, progress: Progress) -> Texts:
        inputs = self.checked(prompts)
        if inputs.features.num_rows == 0:
            raise InputError("generate", "there are no prompts; give at least one")
        asked = {sampling: self.encoder.prompts(inputs.features)}
        now, members, collected = self.answerer.computed(
            prefixes, lambda state: (state.now, state.members, self._write(state, asked, progress))
        )
        return Texts(
            generation=now.generation,
            members=members_of(members, now),
            texts=tuple(map("".join, collected.texts)),
            finish=tuple(collected.finish),
            tokens=tuple(collected.tokens),
            ids=None if inputs.ids is None else tuple(inputs.ids),
            places=inputs.places,
            n=sampling.n,
        )

    def continued(self, asked: Sequence[tuple[Sequence[int], Sampling]], within: State | None = None) -> list[str]:
        """A text after each prompt of tokens, all written at one state; `within` as for `Answerer.computed`."""
        prompts: dict[Sampling, list[Sequence[int]]] = {}
        for prompt, sampling in asked:
            prompts.setdefault(sampling, []).append(prompt)
        written = self.answerer.computed(None, lambda state: self._write(state, prompts, silent), within=within)
        texts = iter(map("".join, written.texts))
        found = {sampling: iter([next(texts) for _ in own]) for sampling, own in prompts.items()}
        return [next(found[sampling]) for _, sampling in asked]

    def check_comparison(self, count: int) -> None:
        """Check that so many texts can be compared with a data set's own, before anything is computed."""
        recipe = self.answerer.parts.recipe
        if count < 0:
            raise InputError("write", f"{count} texts: give a number from 0")
        recipe.task.check_answers("generate", where="write")
        if recipe.columns.text is not None:
            raise InputError("evaluate", "the run learns texts without prompts, so there is nothing to write after")
        rouge_scorer()

    def compared(self, state: State, rows: pa.Table, count: int, progress: Progress) -> dict[str, float]:
        """Measures of the likeliest texts after the first records' prompts, against the records' own."""
        from s3t.prediction.generation import Sampling

        prompts, expected = self.encoder.exchanges(rows.slice(0, count))
        most = max(1, max(len(ids) for ids in self.encoder.tokens(expected)) + 1)
        written = self._write(state, {Sampling(max_new_tokens=most): prompts}, progress)
        return text_metrics(["".join(parts) for parts in written.texts], expected)

    def likelihoods(self, continuations: Sequence[Continuation], within: State | None = None) -> list[Likelihood]:
        """Likelihood of each continuation, given in tokens, under the ensemble; `within` as for `Answerer.computed`."""

        def compute(state: State) -> list[Likelihood]:
            batch = self.answerer.workshop.text_batch(state.members, state.now)
            return batch.likelihoods(continuations, watched(silent, state.work))

        return self.answerer.computed(None, compute, within=within)

    @property
    def encoder(self) -> LanguageEncoder:
        return cast("LanguageEncoder", self.answerer.workshop.encoder)

    def _write(self, state: State, asked: Mapping[Sampling, Sequence[Sequence[int]]], progress: Progress) -> Collected:
        """Texts after prompts, by the settings that both have; those of the first settings first."""
        now, members, work, _ = state
        batch = self.answerer.workshop.text_batch(members, now)
        settings = [sampling for sampling, prompts in asked.items() for _ in batch.add(prompts, sampling)]
        written = Collected(len(settings))
        most = sum(sampling.max_new_tokens for sampling in settings)
        with telling(progress, f"writing {counted(len(settings), 'text')}", most), batch.at_model():
            while pieces := batch.step():
                work.check()
                written.add(pieces)
                # Of a text that ends, the tokens that it might have had are settled, too.
                spared = (
                    settings[each.text].max_new_tokens - written.tokens[each.text] for each in pieces if each.finish
                )
                progress(WorkStep(count=len(pieces) + sum(spared)))
        return written

    def stream(self, prompt: Any, prefixes: Prefixes | None, sampling: Sampling) -> Iterator[str]:
        """Yields the parts of one text.

        Another thread computes, and waits for no reader: a deletion is effective when it has stopped. Each part leaves
        only if the ledger, read again when the reader takes it, still has all that it was made with.
        """
        prompts = self.encoder.prompts(self.checked([prompt]).features)
        parts: queue.SimpleQueue[tuple[Work, str] | BaseException | None] = queue.SimpleQueue()
        left = threading.Event()

        def compute() -> None:
            try:
                now, members = self.answerer.choose(prefixes)
                with self.answerer.parts.presence.working(now, uses_of(now, members)) as work:
                    batch = self.answerer.workshop.text_batch(members, now)
                    batch.add(prompts, sampling)
                    with batch.at_model():
                        while (pieces := batch.step()) and not left.is_set():
                            work.confirm()
                            parts.put((work, "".join(piece.added for piece in pieces)))
                parts.put(None)
            except BaseException as error:  # raised again where the text is read
                parts.put(error)

        thread = threading.Thread(target=compute, daemon=True, name="s3t-write")
        thread.start()
        try:
            while (part := parts.get()) is not None:
                if isinstance(part, BaseException):
                    raise part
                work, text = part
                if text:
                    work.confirm()
                    yield text
        except Overtaken:
            self.answerer.choose(prefixes)  # which says so where nothing may answer any more, or the run was closed
            raise OvertakenError from None
        finally:
            left.set()
            thread.join()

    def checked(self, prompts: Inputs) -> IngestedInputs:
        """Prompts, checked without the model."""
        recipe = self.answerer.parts.recipe
        recipe.task.check_answers("generate")
        return ingest_prompts(prompts, recipe)

    def hold(
        self, prompts: IngestedInputs, sampling: Sampling, batches: Sequence[SharedBatch] = ()
    ) -> tuple[SharedBatch, PendingTexts]:
        """Begin texts that deletions wait for, in one of the batches if the same members write it, else in a new one:
        for servers. Between turns another thread may compute with the model.
        """
        tokens = self.encoder.prompts(prompts.features)
        presence = self.answerer.parts.presence

        def begin(state: State) -> tuple[SharedBatch, PendingTexts]:
            with ExitStack() as failing:
                batch = next((each for each in batches if each.takes(state.now, state.members)), None)
                if batch is None:
                    batch = self._opened(state)
                    failing.callback(batch.stop)
                numbers = batch.add(tokens, sampling)
                texts = PendingTexts(
                    state.work,
                    presence,
                    state.noted.pop_all(),
                    generation=state.now.generation,
                    prompt_tokens=sum(map(len, tokens)),
                    numbers=numbers,
                )
                batch.join(texts)
                failing.pop_all()
            return batch, texts

        return self.answerer.attempt(lambda: nullcontext(self.answerer.choose_now()), begin, held=True)

    def _opened(self, state: State) -> SharedBatch:
        uses = uses_of(state.now, state.members)
        batch = self.answerer.workshop.text_batch(state.members, state.now)
        with ExitStack() as noted:
            work = noted.enter_context(self.answerer.parts.presence.pending(state.now, uses))
            return SharedBatch(batch, state.members, uses, work, noted.pop_all())


class Collected:
    """Texts, ends, token counts, and tokens if they are asked for, so far, by prompt."""

    def __init__(self, count: int) -> None:
        self.texts: list[list[str]] = [[] for _ in range(count)]
        self.finish: list[Finish] = ["length"] * count
        self.tokens = [0] * count
        self.each: list[list[WrittenToken]] = [[] for _ in range(count)]

    def add(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            self.texts[piece.text].append(piece.added)
            self.tokens[piece.text] += 1
            self.each[piece.text] += piece.tokens
            self.finish[piece.text] = piece.finish or "length"
