"""The small Llama: nothing private is in what it reads, a stopped training goes on with the same bits, it is a base."""

import hashlib
import json
import lzma
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import s3t
from experiments.alpaca import COLUMNS, SHARES, divided, part_of, parts
from experiments.runner import FOLDER
from experiments.settings import load
from experiments.small_llama import __main__ as command
from experiments.small_llama.corpus import END, chunks, corpus, documents, encoded, made_up_records, train_tokenizer
from experiments.small_llama.held_out import HeldOut
from experiments.small_llama.settings import Config
from experiments.small_llama.training import Training
from experiments.tasks import MissingRecordsError, task

CONFIG = load(Config, FOLDER / "small_llama" / "config.yaml", smoke=True)


@pytest.fixture(scope="module")
def found():
    return corpus(None, made_up=True)


@pytest.fixture(scope="module")
def tokenizer(found, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    train_tokenizer(found, vocabulary=CONFIG.vocabulary, output=folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder that the command leaves."""
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["small_llama", "--smoke", "--output", str(folder)])
        command.main()
    return folder


def training(found, tokenizer):
    return Training(CONFIG, *documents(found, tokenizer), end=0, padding=1)


def test_every_record_with_an_output_lies_in_one_part_whatever_its_case_and_punctuation():
    names = [part_of(f"Explain thing number {number}.") for number in range(4000)]
    assert all(abs(names.count(part) / 4000 - share / 100) < 0.03 for part, share in SHARES.items())
    assert names == [part_of(f"explain THING, number {number}") for number in range(4000)]
    table = made_up_records()
    table.loc[::50, "output"] = " "
    there = pd.concat(divided(table).values()).sort_values("instruction")
    assert there.instruction.tolist() == sorted(table.instruction[table.output != " "])


@pytest.mark.integration
def test_real_halves_share_no_record(real_data):
    there = parts(real_data)
    assert sum(map(len, there.values())) == 52_002 - 28
    assert len(there["private"]) > 20_000
    plain = [
        {"".join(filter(str.isalnum, (row.instruction + row.input).casefold())) for row in own.itertuples()}
        for own in there.values()
    ]
    assert sum(map(len, plain)) == len(set().union(*plain))


def test_only_public_records_that_are_not_held_out_are_read(found, tokenizer):
    decode = AutoTokenizer.from_pretrained(tokenizer).decode
    records, texts = documents(found, tokenizer)
    read = "".join(decode(each) for each in [*records, *texts])
    for part, own in divided(made_up_records()).items():
        there = [f"### Instruction:\n{instruction}\n\n" in read for instruction in own.instruction]
        assert len(there) > 3
        assert set(there) == {part == "public"}
    assert all(text in read for text in found.texts)


def test_documents_are_tokens_of_a_run_between_two_ends_of_text(found, tokenizer):
    ends = [0]
    wanted = [each["input_ids"].tolist() for each in encoded(found.instructions, tokenizer)]
    records, _ = documents(found, tokenizer)
    assert [ends + own.tolist() for own in records] == wanted
    assert all(own[:1] == ends == own[-1:] and own.count(0) == 2 for own in wanted)
    loaded = AutoTokenizer.from_pretrained(tokenizer)
    assert (loaded.bos_token, loaded.eos_token) == (END, END)
    assert loaded("é 你")["input_ids"][0] == 0
    assert loaded.decode(loaded("é 你\n")["input_ids"], skip_special_tokens=True) == "é 你\n"


def test_chunks_hold_all_documents_in_another_order_each_epoch():
    texts = [np.array([number + 1] * (number % 4 + 1) + [0], dtype=np.int32) for number in range(50)]
    one, two = (chunks(texts, end=0, length=8, rng=np.random.default_rng([0, epoch])) for epoch in (0, 1))
    for own in (one, two):
        assert own.shape == (sum(map(len, texts)) // 8, 9)
        assert (own[1:, 0] == own[:-1, -1]).all()  # each token but the first is foretold once
        stream = [0, *own[:, 1:].flatten().tolist()]
        words = [part.split() for part in " ".join(map(str, stream)).split(" 0 ")]
        assert all(len(set(word) - {"0"}) <= 1 for word in words)
        assert len({word[-1] for word in words}) > 45
    assert one.tolist() != two.tolist()
    again = chunks(texts, end=0, length=8, rng=np.random.default_rng([0, 0]))
    assert one.tolist() == again.tolist()


@pytest.mark.integration
def test_a_stopped_training_goes_on_with_the_same_bits(found, tokenizer, tmp_path):
    held_out = HeldOut(found.held_out, tokenizer, length=CONFIG.length)

    def trained(stops):
        """Losses, curve and tensors of a training that stops after these steps, each time in a new object."""
        kept, losses = tmp_path / f"{len(stops)}.safetensors", {}
        for stop in [*stops, None]:
            own = training(found, tokenizer)
            assert not kept.exists() or own.load(kept, "about")
            evaluate = lambda own=own: held_out.perplexity(own.model)  # noqa: E731
            for step, loss in own.run(evaluate, until=np.inf, save=lambda: None):
                losses[step] = loss
                if step == stop:
                    break
            own.save(kept, "about")
        return losses, own.progress.curve, load_file(kept)

    losses, curve, tensors = trained([])
    again, curve_again, tensors_again = trained([3, 29, 60])  # the first epoch has 30 steps
    assert len(losses) == training(found, tokenizer).steps > 60
    assert (again, curve_again, tensors_again.keys()) == (losses, curve, tensors.keys())
    assert all(torch.equal(tensors[name], tensors_again[name]) for name in tensors)
    assert np.mean([losses[len(losses) - last] for last in range(5)]) < 0.9 * losses[1]


def test_a_state_of_something_else_is_not_gone_on_with(found, tokenizer, tmp_path, monkeypatch):
    own = training(found, tokenizer)
    next(own.run(dict, until=np.inf, save=lambda: None))
    own.save(tmp_path / "state.safetensors", "other settings")
    assert not training(found, tokenizer).load(tmp_path / "state.safetensors", "these")
    monkeypatch.setattr(sys, "argv", ["small_llama", "--smoke", "--output", str(tmp_path)])
    with pytest.raises(SystemExit, match="is of other settings, code, records or machine"):
        command.main()


@pytest.mark.integration
def test_the_command_leaves_a_model_and_tells_of_it_also_if_it_was_stopped(model, found, tmp_path, monkeypatch, capsys):
    told = json.loads((model / "results.json").read_text())
    whole = (model / "model" / "model.safetensors").read_bytes()
    assert told["sha256"] == hashlib.sha256(whole).hexdigest()
    assert {"commit", "seed", "machine", "hours", "held_out", "tokens", "parameters"} <= told.keys()
    assert told["held_out"]["records"] == len(found.held_out)
    for more in (["--minutes", "0.003"], [], []):
        monkeypatch.setattr(sys, "argv", ["small_llama", "--smoke", "--output", str(tmp_path), *more])
        command.main()
        assert (tmp_path / "state.safetensors").exists() == bool(more)
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == whole
    assert "the model is there" in capsys.readouterr().err


@pytest.mark.integration
def test_the_held_out_perplexity_is_what_a_run_on_this_base_finds(model, found, tmp_path):
    """With adapters that have learned nothing; so a run begins where the pre-training ended."""
    told = json.loads((model / "results.json").read_text())["held_out"]
    loaded = AutoModelForCausalLM.from_pretrained(model / "model")
    recipe = {
        "task": "causal-lm",
        "base_model": str(model / "model"),
        "columns": COLUMNS,
        "language": {"max_length": CONFIG.length},
        "partition": {"shards": 1, "slices": 4},
        "training": {"epochs": 0, "precision": "float32"},
    }
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=divided(made_up_records())["private"]) as run:
        run.train()
        evaluated = run.evaluate(found.held_out)
    nats, tokens = 0.0, 0
    for each in encoded(found.held_out, model / "model", length=CONFIG.length):
        ids, answered = each["input_ids"], each["answered"]
        with torch.no_grad():
            likely = loaded(ids[None]).logits[0].log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]
        nats -= likely[answered[:-1]].sum().item()
        tokens += int(answered.sum())
    assert evaluated.metrics["tokens"] == tokens
    assert evaluated.metrics["perplexity"] == pytest.approx(np.exp(nats / tokens), rel=1e-4)
    assert told["perplexity"] == pytest.approx(np.exp(nats / tokens), rel=0.02)  # in bfloat16


def test_committed_results_are_of_the_committed_settings():
    committed = json.loads((FOLDER / "small_llama" / "results.json").read_text())
    config = load(Config, FOLDER / "small_llama" / "config.yaml")
    assert committed["config"] == config.model_dump(mode="json")
    assert committed["seed"] == config.seed
    assert "changes" not in committed["commit"]
    assert committed["hours"] < 2
    assert 10e6 < committed["parameters"] < 15e6
    text, held_out = (FOLDER / "small_llama" / "README.md").read_text(), committed["held_out"]
    for told in (
        f"{held_out['perplexity']:.1f}",
        f"{held_out['perplexity_with_prompts']:.1f}",
        f"{committed['hours']:.2f} hours",
        f"{committed['tokens_passed'] / 1e6:.1f} million tokens",
        f"{held_out['bits_a_byte']:.2f} bits a byte",
        f"{committed['curve'][0]['perplexity']:.0f} after a tenth",
    ):
        assert told in text


def test_without_a_base_one_line_says_how_it_is_trained(tmp_path, monkeypatch):
    (tmp_path / "alpaca").mkdir()
    content = json.dumps(made_up_records(8).to_dict("records")).encode()
    (tmp_path / "alpaca" / "alpaca_data.json.xz").write_bytes(lzma.compress(content))
    monkeypatch.setenv("S3T_DATA", str(tmp_path))
    monkeypatch.setenv("S3T_EXPERIMENTS", str(tmp_path / "none"))
    with pytest.raises(
        MissingRecordsError, match=r"none/small-llama/model; python -m experiments\.small_llama trains it"
    ):
        task("alpaca")
