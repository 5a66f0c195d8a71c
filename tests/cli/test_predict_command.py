"""`s3t predict` for programs: standard input, lines on standard output, texts, the likeliest labels, rows."""

import io
import json
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest

import s3t
from s3t.tasks import TASKS
from testing import tiny
from tests.cli.typed import document, invoke, problems

TABLE = tiny.text_table()


@pytest.fixture
def small_windows(monkeypatch):
    """Windows of 8 inputs: two batches of 4. A run of its own is needed: the batch is the recipe's."""
    task = TASKS["text-classification"]
    small = replace(task, inputs=replace(task.inputs, window_batches=2))
    monkeypatch.setattr("s3t.tasks.targets.TASKS", {task.name: small})


@pytest.fixture(scope="module")
def quick(tmp_path_factory, text_model):
    """A trained run that answers four inputs a batch."""
    folder = tmp_path_factory.mktemp("quick") / "run"
    small = {"training": {"epochs": 1}, "partition": {"slices": 1}, "sequences": {"budget": 1}}
    content = tiny.recipe(text_model, prediction={"batch_size": 4}, **small)
    with s3t.Run.create(folder, recipe=content, data=TABLE) as run:
        run.train()
    return folder


def lines(*arguments, stdin=None):
    """The objects that the command printed."""
    result = invoke("predict", *arguments, "--jsonl", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def jsonl(table):
    return "".join(json.dumps(row) + "\n" for row in table.to_dict("records"))


def test_lines_are_the_documents_answers_bit_for_bit_whatever_the_windows(quick, tmp_path, small_windows):
    path = tmp_path / "new.csv"
    TABLE.to_csv(path, index=False)
    whole = document("predict", quick, "--input", path)["predictions"]
    assert lines(quick, "--input", path) == whole
    assert [row["id"] for row in whole] == TABLE.id.tolist()
    with s3t.Run.open(quick) as run:
        windows = list(run.predict_windows(path))
        assert [len(window) for window in windows] == [8, 8, 8]
        together = run.predict(path)
        joined = [window.logits for window in windows]
    assert all((part == together.logits[:, 8 * n : 8 * n + 8]).all() for n, part in enumerate(joined))


def test_inputs_that_are_cut_are_counted_and_told_of(quick, tmp_path):
    asked = ("predict", quick, "--text", " ".join(["w1"] * 30), "--text", "w2")
    shown = invoke(*asked, "--json")
    assert json.loads(shown.stdout)["cut"] == 1
    assert "s3t: 1 input has more tokens than max_length" in shown.stderr
    assert "cut there" in invoke(*asked).stderr
    assert "cut there" in invoke(*asked, "--jsonl").stderr
    assert "cut there" not in invoke("predict", quick, "--text", "w2").stderr


def test_standard_input_is_json_lines_unless_it_is_said_to_be_csv(quick):
    whole = document("predict", quick, "--text", "w1 w2", "--text", "w30")["predictions"]
    texts = pd.DataFrame({"text": ["w1 w2", "w30"]})
    from_json = lines(quick, "--input", "-", stdin=jsonl(texts))
    from_csv = lines(quick, "--input", "-", "--format", "csv", stdin=texts.to_csv(index=False))
    assert [row.pop("row") for row in whole] == [0, 1]
    assert [row.pop("row") for row in from_json] == [1, 2]
    assert [row.pop("row") for row in from_csv] == [2, 3]
    assert from_json == from_csv == whole
    table = invoke("predict", quick, "--input", "-", stdin=jsonl(texts)).stdout
    assert "generation 0" in table


def test_rows_are_the_files_lines_also_behind_cells_with_line_ends(quick, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text('text\n"w1\nw2"\n\nw30\n')
    assert [row["row"] for row in lines(quick, "--input", path)] == [2, 5]
    assert [row["row"] for row in document("predict", quick, "--input", path)["predictions"]] == [2, 5]
    answers = tmp_path / "answers.csv"
    document("predict", quick, "--input", path, "--output", answers)
    assert pd.read_csv(answers).row.tolist() == [2, 5]


def test_a_large_input_is_answered_as_it_comes(quick, small_windows):
    """The first window's answers are there before the second window is sent."""

    class Slow(io.RawIOBase):
        """A pipe that hands out a window's lines at a time, and notes when it is asked."""

        def __init__(self):
            self.left = [jsonl(TABLE[start : start + 8]).encode() for start in (0, 8, 16)]
            self.asked = 0

        def readable(self):
            return True

        def readinto(self, room):
            self.asked += 1
            content = self.left.pop(0) if self.left else b""
            room[: len(content)] = content
            return len(content)

    pipe = Slow()
    with s3t.Run.open(quick) as run:
        windows = run.predict_windows(io.BufferedReader(pipe), form="jsonl")
        first = next(windows)
        assert len(first) == 8
        assert len(pipe.left) == 2 or pipe.asked == 1
        assert [len(window) for window in windows] == [8, 8]


def test_a_fault_in_the_midst_is_told_after_the_answers_before_it(quick, tmp_path, small_windows):
    path = tmp_path / "new.jsonl"
    path.write_text(jsonl(TABLE[:8]) + '{"text": "a private sentence"\n')
    result = invoke("predict", quick, "--input", path, "--jsonl")
    assert result.exit_code == 2
    assert len(result.stdout.splitlines()) == 8
    assert "line 9" in result.stderr
    assert "private" not in result.stderr
    ragged = tmp_path / "new.csv"
    ragged.write_text("text\nw1\nw2,private\n")
    result = invoke("predict", quick, "--input", ragged, "--jsonl")
    assert "line 3: the row has 2 cells and the header 1" in result.stderr
    assert "private" not in result.stderr


def test_the_likeliest_labels_are_told(quick):
    (row,) = lines(quick, "--text", "w1", "--top", 2)
    (whole,) = lines(quick, "--text", "w1")
    assert list(row["probabilities"]) == sorted(whole["probabilities"], key=whole["probabilities"].get)[:0:-1]
    assert "likeliest 2" in invoke("predict", quick, "--text", "w1", "--top", 2).stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "give the inputs as --input FILE"),
        (("--input", "new.csv", "--text", "w1"), "one of them"),
        (("--text", "w1", "--pair", "w2", "--pair", "w3"), "2 --pair for 1 --text"),
        (("--text", "w1", "--format", "csv"), "--format is of --input"),
        (("--text", "w1", "--top", "0"), "give at least 1"),
        (("--input", "-", "--format", "xlsx"), "'xlsx' is none; use csv, tsv, jsonl, parquet"),
    ],
)
def test_options_that_do_not_go_together_are_refused(quick, arguments, problem):
    assert problem in problems("predict", quick, *arguments)[0]


def test_pairs_are_typed_as_pairs(tmp_path, text_model):
    content = tiny.recipe(text_model, columns={"text": "first", "text_pair": "second"}, sequences={"budget": 1})
    content |= {"partition": {"shards": 1, "slices": 1}}
    table = TABLE.rename(columns={"text": "first"}).assign(second="w3")
    with s3t.Run.create(tmp_path / "run", recipe=content, data=table) as run:
        run.train()
        wanted = run.predict([("w1", "w2"), ("w30", "w4")]).rows()
    typed = ("--text", "w1", "--pair", "w2", "--text", "w30", "--pair", "w4")
    assert lines(tmp_path / "run", *typed) == wanted
    assert "neither pairs of texts nor rows" in problems("predict", tmp_path / "run", "--text", "w1")[0]


@pytest.mark.integration
def test_a_program_reads_lines_through_pipes(quick):
    """The command as a program starts it: two windows' answers arrive while standard input is open."""
    with subprocess.Popen(
        [sys.executable, "-m", "s3t", "predict", str(quick), "--input", "-", "--jsonl"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        many = jsonl(pd.concat([TABLE] * 22, ignore_index=True))  # 528 inputs, windows of 256
        program.stdin.write(many)
        program.stdin.flush()
        first = [json.loads(program.stdout.readline()) for _ in range(512)]
        program.stdin.close()
        rest = [json.loads(line) for line in program.stdout]
    assert [row["id"] for row in first + rest] == TABLE.id.tolist() * 22
