"""A run as a model of the lm-evaluation-harness (extra `harness`), registered there as `s3t`.

    lm = S3TModel(s3t.Run.open("RUN"))
    lm_eval.simple_evaluate(model=lm, tasks=["arc_easy"])

Contexts and continuations are the harness's own texts: no template of the recipe is filled. They become tokens as in
the harness's model of Hugging Face, so that a run and its export are asked the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# The harness enters its own models only while its registry is empty, so before ours is in it.
import lm_eval
import lm_eval.models
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from s3t.errors import InputError
from s3t.models.encoders import letters
from s3t.models.language import asks_for_date
from s3t.prediction.generation import Continuation, Likelihood, Sampling
from s3t.run.answerer import State
from s3t.run.run import Run

PAPER = ("mmlu", "hellaswag", "piqa", "winogrande", "arc_challenge", "arc_easy", "truthfulqa_mc2", "openbookqa")
"""The tasks by which the paper judges Llama models tuned on Alpaca (its table of instruction tuning)."""


@register_model("s3t")
class S3TModel(TemplateLM):  # type: ignore[misc, unused-ignore]
    """The ensemble of a run of a language model, which is open, or named by its folder."""

    def __init__(self, run: Run | str, **_options: Any) -> None:
        super().__init__()
        self.run = Run.open(run) if isinstance(run, str) else run
        self.run.recipe.task.check_answers("generate", where="harness")
        self._writer = self.run.parts.writer
        encoder = self._writer.encoder
        self._encoder, self._end = encoder, encoder.end
        self._begin = encoder.tokenizer.bos_token_id
        self.max_length = self._writer.answerer.workshop.model.base.positions
        self._state: State | None = None
        """State that answers all requests of an evaluation; None outside of one: then each call takes the newest."""
        self._chats: dict[str, str] = {}
        """Chats by what they look like, as the encoder takes them: it tells control tokens from what people write."""

    def evaluated(self, **asked: Any) -> tuple[int, dict[str, Any]]:
        """(Generation, results of `lm_eval.simple_evaluate`): all answers are of one state of the run.

        If a deletion takes a stage that answers, the evaluation begins anew, as `Run.evaluate` does.
        """

        def compute(state: State) -> tuple[int, dict[str, Any]]:
            self._state = state
            try:
                return state.now.generation, lm_eval.simple_evaluate(model=self, **asked)
            finally:
                self._state = None

        return self._writer.answerer.computed(None, compute)

    @property
    def eot_token_id(self) -> int:
        return self._end

    @property
    def prefix_token_id(self) -> int:
        """Before a text without context: the beginning of text, or its end."""
        return self._end if self._begin is None else int(self._begin)

    @property
    def tokenizer_name(self) -> str:
        """The base model's name, for the harness's cache of requests."""
        return self.run.recipe.base_model.replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A chat as the base model's template writes it; a prefilled turn of the assistant goes on."""
        if self._encoder.date is None and asks_for_date(self._encoder.tokenizer):
            what = "the base model's chat template writes the day's date, and the run, of an earlier version, has none"
            raise InputError("the harness", f"{what}; ask without chats, or make the run again")
        marked = self._encoder.rendered(chat_history, ask=add_generation_prompt, goes_on=not add_generation_prompt)
        text = self._encoder.shown(marked)
        self._chats |= {text: marked, text.rstrip(): marked.rstrip()}  # the harness moves blanks to the continuation
        return text

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Token ids; with the beginning of text where the tokenizer adds it and the text does not have it."""
        string = letters(string)
        for length in sorted({*map(len, self._chats)}, reverse=True):  # a chat, perhaps with an answer after it
            if marked := self._chats.get(string[:length]):
                string = marked + string[length:]
                break
        return self._encoder.tokens([string])[0] if add_special_tokens is False else self._encoder.begun(string)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Log-probability of each text, in windows of the model's positions where it is longer."""
        pairs, counts = [], []
        for (text,) in (request.args for request in requests):
            windows = [
                make_disjoint_window(window)
                for window in get_rolling_token_windows(
                    token_list=self.tok_encode(text),
                    prefix_token=self.prefix_token_id,
                    max_seq_len=self.max_length,
                    context_len=1,
                )
            ]
            pairs += [("", before, tokens) for before, tokens in windows]
            counts.append(len(windows))
        each = iter(self._loglikelihood_tokens(pairs))
        return [sum(next(each)[0] for _ in range(count)) for count in counts]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Texts after contexts, until one of the stop texts; contexts that are too long lose their beginning."""
        asked: list[tuple[list[int], Sampling]] = []
        for context, settings in (request.args for request in requests):
            sampling = _sampling(settings)
            room = max(1, self.max_length - sampling.max_new_tokens)
            asked.append((self.tok_encode(context)[-room:], sampling))
        return self._writer.continued(asked, self._state)

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, Sequence[int], Sequence[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        asked = [self._fitted(before, tokens) for _, before, tokens in requests]
        found: list[Likelihood] = self._writer.likelihoods(asked, self._state)
        return [(one.log_probability, one.greedy) for one in found]

    def _fitted(self, before: Sequence[int], tokens: Sequence[int]) -> Continuation:
        """A continuation whose context loses its beginning where both are longer than the model."""
        if len(tokens) > self.max_length:
            what = f"a continuation has {len(tokens)} tokens, and the model takes {self.max_length}"
            raise InputError("the task of the harness", f"{what}; ask for its rolling likelihood, or use another task")
        whole = [*before, *tokens][-(self.max_length + 1) :]
        return Continuation(whole[: len(whole) - len(tokens)], tokens)


def _sampling(settings: Mapping[str, Any]) -> Sampling:
    stop = settings.get("until") or ()
    draws = bool(settings.get("do_sample", False))
    return Sampling(
        max_new_tokens=int(settings.get("max_gen_toks", 256)),
        temperature=float(settings.get("temperature", 1.0)) if draws else 0.0,
        top_p=float(settings.get("top_p", 1.0)) if draws else 1.0,
        stop=(stop,) if isinstance(stop, str) else tuple(text for text in stop if text),
    )
