"""Texts that a run writes: those of the mean of its members' probabilities, and none by a deleted stage."""

import random
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

import s3t
from s3t.core import Stage
from s3t.models.adapters import deserialize
from s3t.models.assembly import assemble
from s3t.models.language import Decoding
from s3t.prediction.generation import Sampling, Written, pick
from s3t.recipe import recipe_from
from testing import tiny
from testing.language import VOCABULARY, chat_table, language_recipe, make_language_model, prompt_table
from testing.plain import copy_with
from testing.roles import roles
from tests.run.meanwhile import deletion_after_a_step
from tests.run.test_language import CHATS
from tests.run.worlds import SMALL, trained_run
from tests.slow.test_architectures import TEXTS, make_model

PROMPTS = ["w1 w2", "w3", "w4 w5 w6 w7"]
FEW = {"max_new_tokens": 7}


UNTRAINED = {"partition": {"shards": 1}, "sequences": {"budget": 1}, "training": {"epochs": 0}}


def in_integration(*kinds):
    return [pytest.param(kind, marks=pytest.mark.integration) for kind in kinds]


@pytest.fixture(scope="module", params=["llama", *in_integration("gemma3", "gpt2")])
def run(request, tmp_path_factory):
    """Of two members."""
    folder = tmp_path_factory.mktemp(request.param)
    recipe = language_recipe(make_language_model(folder / "model", kind=request.param), sequences={"budget": 1})
    with trained_run(folder / "run", recipe, prompt_table()) as opened:
        yield opened


@pytest.fixture
def small(language_once, tmp_path):
    with s3t.Run.open(tiny.copy_run(language_once, tmp_path / "small")) as opened:
        yield opened


@pytest.fixture(scope="module")
def chats(llama, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chats") / "run"
    with trained_run(folder, language_recipe(llama, **CHATS, **UNTRAINED), chat_table()) as opened:
        yield opened


def plain_copies(run):
    """Each member as a model with PEFT's modules on it, from the artifacts on the disk."""
    workshop, now = roles(run).loaded.get(), roles(run).ledger.snapshot()
    copies = []
    for member in run.score(prompt_table()).members:
        chain = Stage(member.shard, member.prefix).chain
        keys = [now.stages[stage] for stage in chain]
        folder = run.path / "artifacts" / f"shard-{member.shard:03d}"
        blocks = {
            depth: deserialize((folder / f"{key}.safetensors").read_bytes()) for depth, key in enumerate(keys, start=1)
        }
        copies.append(copy_with(workshop.model, blocks))
    return copies


def plain_text(copies, prompt, count):
    """Greedy, without any cache: the whole text passes every member for each token."""
    ids = [VOCABULARY.index(word) for word in prompt.split()]
    begun = len(ids)
    while len(ids) < begun + count:
        with torch.no_grad():
            each = [copy(input_ids=torch.tensor([ids])).logits[0, -1].softmax(0) for copy in copies]
        token = int(torch.stack(each).mean(0).argmax())
        if VOCABULARY[token] == "</s>":
            break
        ids.append(token)
    return " ".join(VOCABULARY[token] for token in ids[begun:] if VOCABULARY[token] not in ("<pad>", "<unk>", "<s>"))


def test_greedy_texts_are_those_of_the_members_mean_without_a_cache(run):
    """Also of one member, with merged weights."""
    texts, copies = run.generate(PROMPTS, **FEW), plain_copies(run)
    assert len(copies) == len(texts.members) == 2
    for members, asked in ((copies, {}), (copies[:1], {"prefixes": texts.members[:1]})):
        found = [" ".join(text.split()) for text in run.generate(PROMPTS, **asked, **FEW).texts]
        assert found == [plain_text(members, prompt, 7) for prompt in PROMPTS]


def test_a_text_does_not_hang_on_the_prompts_beside_it(run):
    settings = FEW | {"temperature": 1.3, "top_p": 0.9, "seed": 5}
    together = run.generate(PROMPTS, **settings)
    assert together.texts[:2] == run.generate(PROMPTS[:2], **settings).texts
    assert together.texts[1] == run.generate(["w9", PROMPTS[1]], **settings).texts[1]
    assert together.texts != run.generate(PROMPTS, **(settings | {"seed": 6})).texts


def test_each_prompt_and_choice_has_draws_of_its_own_which_a_seed_repeats(small):
    settings = FEW | {"temperature": 5.0}
    same = small.generate(["w1 w2"] * 6, seed=3, **settings)
    assert len(set(same.texts)) == 6
    several = small.generate(["w1 w2", "w1 w2"], n=3, seed=3, **settings)
    assert (several.texts[0], several.texts[3]) == same.texts[:2]
    assert len(set(several.texts)) == 6
    assert [(row["row"], row["choice"]) for row in several.rows()] == [(p, c) for p in range(2) for c in range(3)]
    assert several.texts == small.generate(["w1 w2", "w1 w2"], n=3, seed=3, **settings).texts
    assert len({small.generate(["w1 w2"], **settings).texts for _ in range(4)}) > 1  # a seed of its own each time


def test_texts_that_end_earlier_leave_the_others_their_own_keys_and_values(tmp_path):
    """Two members that are alike, in float32; texts of 1, 9 and 4 tokens."""
    folder = make_language_model(tmp_path / "model")
    model, encoder = assemble(folder, recipe_from(language_recipe(folder)), labels=1)
    prompts, most = encoder.prompts(pa.table({"prompt": PROMPTS})), [1, 9, 4]

    def written(numbers):
        found, going, joining = [[] for _ in numbers], {}, list(range(len(numbers)))
        decoding = Decoding(model.base.model, members=2, pad=0, cached=True)
        with torch.inference_mode():
            while going or joining:
                newest = {place: found[text][-1] for place, text in going.items()}
                logits = decoding.step(newest, [prompts[numbers[text]] for text in joining])
                under_way, joining = [*going.values(), *joining], []
                for text, token in zip(under_way, logits.mean(dim=0).argmax(dim=-1).tolist(), strict=True):
                    found[text].append(token)
                going = {place: text for place, text in enumerate(under_way) if len(found[text]) < most[numbers[text]]}
        return found

    assert written([0, 1, 2]) == [written([number])[0] for number in range(3)]


def test_a_text_ends_at_a_stop_text_which_is_no_part_of_it_and_streams_in_parts(small):
    settings = FEW | {"temperature": 2.0, "seed": 3}
    (whole,) = small.generate(["w1 w2"], **settings).texts
    parts, stop = list(small.stream("w1 w2", **settings)), f" {whole.split()[2]}"
    assert "".join(parts) == whole
    assert len(parts) > 1
    stopped = small.generate(["w1 w2"], stop=[stop, "never"], **settings)
    assert stopped.texts[0] == whole[: whole.index(stop)]
    assert stopped.finish == ("stop",)
    assert "".join(small.stream("w1 w2", stop=stop, **settings)) == stopped.texts[0]


@pytest.mark.parametrize("kind", ["llama", "mpt"])
def test_a_text_ends_where_the_model_has_no_more_positions(kind, tmp_path):
    model = make_model(kind, TEXTS, tmp_path / "model")
    with trained_run(tmp_path / "run", language_recipe(model, **UNTRAINED), prompt_table()) as run:
        texts = run.generate([" ".join(["w1"] * 45)], max_new_tokens=50)
        assert texts.tokens[0] <= 3
        with pytest.raises(s3t.InputError, match="prompt 1 has 48 tokens; give 1 to 47"):
            run.generate(["w1", " ".join(["w1"] * 48)])


def test_a_question_of_a_chat_is_answered_after_the_template_and_the_last_turn_compared(chats):
    chat = [{"role": "user", "content": "w1 w2"}]
    assert "".join(chats.stream(chat, **FEW)) == chats.generate([chat], **FEW).texts[0]
    with pytest.raises(s3t.InputError, match="ends with the assistant's turn"):
        chats.generate([[*chat, {"role": "assistant", "content": "w3"}]])
    assert set(chats.evaluate(chat_table().head(3), write=3).metrics) >= {"perplexity", "exact_match", "rouge_l"}


def test_prompts_are_filled_into_the_recipes_template(llama, tmp_path):
    templates = {"columns": {"prompt": ["w0 {prompt} w1 {more}", "w0 {prompt} w1"]}}
    table = prompt_table().assign(more="")
    with trained_run(tmp_path / "run", language_recipe(llama, **templates, **UNTRAINED), table) as run:
        assert len(run.generate([{"prompt": "w3", "more": "w4"}, {"prompt": "w3", "more": ""}], **FEW)) == 2
        with pytest.raises(s3t.InputError, match="no rows"):
            run.generate(["w3"])


def test_an_evaluation_can_compare_texts_with_completions(small):
    """The likeliest text after each prompt, found as a completion, is an exact match."""
    table = prompt_table().head(4)
    texts = small.generate(list(table.prompt), max_new_tokens=6).texts
    right = table.assign(completion=[text or "w1" for text in texts])
    found = small.evaluate(right, per_depth=False, write=2).metrics
    longest = max(len(text.split()) for text in right.completion[:2]) + 1
    again = small.generate(list(table.prompt)[:2], max_new_tokens=longest).texts
    equal = [text.strip() == wanted.strip() for text, wanted in zip(again, right.completion, strict=False)]
    assert found["exact_match"] == np.mean(equal)
    assert 0 <= found["rouge_l"] <= 1
    assert "exact_match" not in small.evaluate(right, per_depth=False).metrics


def test_what_cannot_be_written_after_is_said_before_anything_is_computed(llama, tmp_path, monkeypatch):
    recipe = language_recipe(llama, **SMALL) | {"columns": {"id": "id", "text": "prompt"}}
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=prompt_table(12)[["id", "prompt"]]) as run:
        monkeypatch.setattr(
            type(run.parts.answerer), "evaluate", lambda *_args, **_more: pytest.fail("it was evaluated")
        )
        with pytest.raises(s3t.InputError, match="nothing to write after"):
            run.evaluate(prompt_table(2), write=2)
        with pytest.raises(s3t.InputError, match="give a number from 0"):
            run.evaluate(prompt_table(2), write=-1)


def test_what_cannot_be_asked_for_is_told_at_once(small, trained):
    for asked, settings, problems in (
        (["w1"], {"temperature": -1.0, "top_p": 0.0, "max_new_tokens": 0}, 3),
        (["w1"], {"stop": [""]}, 1),
        (["w1"], {"temperature": float("nan"), "seed": -1, "n": 0}, 3),
        ([], {}, 1),
    ):
        with pytest.raises(s3t.InputError) as error:
            small.generate(asked, **settings)
        assert len(error.value.problems) == problems
    with pytest.raises(s3t.InputError, match="does not generate; ask `predict`"):
        trained.generate(["w1"])


def test_draws_are_among_the_likeliest_tokens():
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    draw = torch.Generator().manual_seed(0)
    drawn = {pick(probabilities, Sampling(temperature=1.0, top_p=0.7), draw) for _ in range(200)}
    assert drawn == {0, 1}
    everything = {pick(probabilities, Sampling(temperature=1.0), draw) for _ in range(400)}
    assert everything == {0, 1, 2, 3}
    colder = [pick(probabilities, Sampling(temperature=0.25), draw) for _ in range(400)]
    assert colder.count(0) > 320
    assert pick(probabilities, Sampling(temperature=1e-320), draw) == 0


def bytewise(*, fallback):
    """A tokenizer of one byte a token: as GPT-2 spells bytes, or as SentencePiece falls back to them."""
    if fallback:
        names = ["</s>", "<unk>", "▁", "▁day", "a", *(f"<0x{number:02X}>" for number in range(256))]
        tokenizer = Tokenizer(BPE({name: number for number, name in enumerate(names)}, [], byte_fallback=True))
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        tokenizer.decoder = decoders.Sequence(steps)
    else:
        names = ["</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
        tokenizer = Tokenizer(BPE({name: number for number, name in enumerate(names)}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


def test_half_a_character_and_the_beginning_of_a_stop_text_wait():
    tokenizer = bytewise(fallback=False)
    written = Written(tokenizer=tokenizer, ends=(0,), stop=["stop"], most=99)
    told = [written.add(token) for token in tokenizer("é st é")["input_ids"]]
    assert [added for added, _, _ in told] == ["", "é", " ", "", "", "st ", "", "é"]
    assert all(finish is None for _, finish, _ in told)
    rest = [written.add(token) for token in tokenizer("a stop b")["input_ids"]]
    assert "".join(added for added, _, _ in rest[:6]) == "a "
    assert rest[5][1] == "stop"


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("cleaned", [False, True])
def test_parts_of_a_text_are_together_what_all_its_tokens_say(fallback, cleaned):
    """Also where bytes make no character; a part that has left is not taken back."""
    tokenizer, rng = bytewise(fallback=fallback), random.Random(0)
    if cleaned:  # only of other vocabularies than byte pairs are blanks cleaned up
        tokenizer.clean_up_tokenization_spaces = True
        tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    wholes = ["I am 😀 today , really", "漢字 is kanji", "👩‍👩‍👧 do n't it 's", " a � b"]
    asked = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in wholes]
    asked += [[rng.randrange(1, len(tokenizer)) for _ in range(12)] for _ in range(200)]
    for ids in asked:
        written = Written(tokenizer=tokenizer, ends=(0,), stop=(), most=99)
        assert "".join(written.add(token)[0] for token in [*ids, 0]) == tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("fallback", [False, True])
def test_tokens_that_are_told_spell_the_text_up_to_its_stop(fallback):
    tokenizer = bytewise(fallback=fallback)
    written = Written(tokenizer=tokenizer, ends=(0,), stop=["stop"], most=99)
    ids = tokenizer("é😀 a daystop", add_special_tokens=False)["input_ids"]
    steps = [written.add(token, [(token, -0.5), (0, -3.0), (ids[0], -0.5)]) for token in ids]
    tokens = [token for _, _, whole in steps for token in whole]
    assert written.told == "é😀 a day"
    assert b"".join(token.chosen.bytes for token in tokens).decode() == written.told
    assert [token.offset for token in tokens] == [0] * 2 + [1] * 4 + list(range(2, len(tokens) - 4))
    assert tokens[6].chosen == (" ", b" ", -0.5)
    assert [len(one.bytes) for one in tokens[6].likeliest] == [0, 1]
    assert [one.logprob for one in tokens[6].likeliest] == [-3.0, -0.5]
    told = 0
    for added, _, whole in steps:  # none is told before the letters that it is a part of
        told += len(added)
        assert all(token.offset < told for token in whole)


def test_a_deletion_ends_a_stream_and_waits_for_no_reader(small):
    """What is read late was made before; nothing is made after the deletion is effective."""
    stream = small.stream("w1 w2", max_new_tokens=40, temperature=5.0, seed=1)  # else a first token may end it
    first = next(stream)
    report = small.delete(records=list(prompt_table().id[:20]))
    assert report.state == "erased"  # although the stream was not read on
    assert first
    with suppress(s3t.OvertakenError, s3t.NoLiveShardError):  # or all of it was written before
        list(stream)


@pytest.fixture
def deletion_after_the_first_token(small, monkeypatch):
    with deletion_after_a_step(small, "r3", monkeypatch) as steps:
        yield steps


def test_no_part_of_a_text_leaves_after_a_deletion_was_accepted(small, deletion_after_the_first_token):
    parts = []
    with pytest.raises(s3t.OvertakenError):  # noqa: PT012
        for part in small.stream("w1 w2", temperature=2.0, seed=3, **FEW):
            parts.append(part)
    assert len(parts) == 1
    assert len(deletion_after_the_first_token) == 2  # the second was made meanwhile, and none after it


def test_a_stream_of_a_run_that_is_closed_says_so(small):
    how = {"max_new_tokens": 40, "temperature": 5.0, "seed": 0}
    (whole,) = small.generate(["w1 w2"], **how).texts
    stream = small.stream("w1 w2", **how)
    parts = [next(stream)]
    small.close()
    with suppress(s3t.ClosedError):
        parts += stream
        assert "".join(parts) == whole  # all of it was written before


def test_a_deletion_makes_a_text_be_begun_anew(small, deletion_after_the_first_token):
    texts = small.generate(["w1 w2"], temperature=2.0, seed=3, **FEW)
    assert texts.generation == 1
    assert texts.texts == small.generate(["w1 w2"], temperature=2.0, seed=3, **FEW).texts


def test_an_evaluation_that_a_deletion_overtakes_while_it_writes_is_made_anew(small, deletion_after_the_first_token):
    """Its perplexity is of the same generation as its texts."""
    asked = {"per_depth": False, "write": 2}
    evaluation = small.evaluate(prompt_table().head(4), **asked)
    assert evaluation.generation == 1
    assert evaluation.metrics == small.evaluate(prompt_table().head(4), **asked).metrics
