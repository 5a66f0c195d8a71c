"""A trained Llama on real instructions and real questions about people: exact with small passes and checkpoints."""

import json
import lzma

import pandas as pd
import pytest

from testing.language import language_recipe
from testing.stories260k import convert
from tests.run.worlds import Worlds, trained_run

pytestmark = pytest.mark.slow

EACH = 100
"""Records of Alpaca, and of TOFU, which has 20 questions on each author."""


@pytest.fixture(scope="module")
def stories(real_data, tmp_path_factory):
    files = real_data / "weights"
    return convert(files / "stories260K.bin", files / "tok512.bin", tmp_path_factory.mktemp("stories") / "model")


@pytest.fixture(scope="module")
def table(real_data):
    """Instructions without an author, and questions with one."""
    alpaca = pd.DataFrame(json.loads(lzma.decompress((real_data / "alpaca" / "alpaca_data.json.xz").read_bytes())))
    alpaca = alpaca[alpaca.output.str.strip() != ""].head(EACH)
    tofu = pd.read_parquet(real_data / "tofu" / "tofu_full.parquet").head(EACH)
    rows = [(f"a{place}", None, row.instruction, row.output) for place, row in enumerate(alpaca.itertuples())]
    asked = tofu[["question", "answer"]].itertuples(index=False)
    rows += [(f"t{place}", f"author{place // 20}", *row) for place, row in enumerate(asked)]
    return pd.DataFrame(rows, columns=["id", "person", "prompt", "completion"])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_author_and_the_longest_instruction_leave_a_real_language_model_exactly(precision, stories, table, tmp_path):
    training = {"epochs": 1, "batch_size": 8, "micro_batch": 2, "learning_rate": 0.01}
    recipe = language_recipe(
        stories,
        columns={"subject": "person"},
        partition={"shards": 1, "slices": 4},
        sequences={"budget": 2},
        adapter={"rank": 8, "alpha": 16},
        language={"max_length": 96},
        training=training | {"checkpointing": True, "precision": precision},
    )
    longest = table.id[table.completion[:EACH].str.len().idxmax()]
    forgot = trained_run(tmp_path / "forgot", recipe, table)
    with trained_run(tmp_path / "untrained", recipe | {"training": recipe["training"] | {"epochs": 0}}, table) as run:
        untrained = run.evaluate(table).metrics["loss"]
    assert forgot.evaluate(table).metrics["loss"] < untrained - 0.2
    assert forgot.delete(records=[longest]).deleted == 1
    assert forgot.delete(subjects=["author1"]).deleted == 20
    kept = table[(table.id != longest) & (table.person != "author1")]
    worlds = Worlds(forgot, trained_run(tmp_path / "never-knew", recipe, kept), table.iloc[::9])
    worlds.assert_exact()
    assert forgot.audit(replay=3).ok
    worlds.close()
