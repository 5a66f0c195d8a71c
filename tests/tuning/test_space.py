"""What may vary, and what is refused."""

import pytest

from s3t.errors import InputError
from s3t.tuning import Choice, read_space, with_values


def test_lists_ranges_and_logarithms_are_choices(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(
        "training.epochs: [1, 2]\ntraining.learning_rate: {log: [1.0e-4, 1.0e-2]}\nadapter.rank: {between: [2, 8]}\n"
    )
    assert read_space(path) == (
        Choice(field="training.epochs", kind="one of", values=(1, 2)),
        Choice(field="training.learning_rate", kind="log", values=(1e-4, 1e-2)),
        Choice(field="adapter.rank", kind="between", values=(2, 8)),
    )


def test_all_that_is_wrong_is_said_at_once():
    wrong = {
        "labels": [["a"], ["b"]],
        "partition.salt": ["x"],
        "training.epochs": [],
        "training.seed": 3,
        "training.warmup": {"between": [0.2, 0.1]},
        "training.learning_rate": {"log": [0, 1]},
        "adapter.rank": {"around": [1, 2]},
    }
    with pytest.raises(InputError) as failure:
        read_space(wrong)
    assert [problem.partition(":")[0] for problem in failure.value.problems] == [*wrong]


@pytest.mark.parametrize(
    ("content", "reason"), [("{}", "names no field"), ("[]", "names no field"), ("a: [", "not YAML")]
)
def test_a_file_without_a_space_is_refused(content, reason, tmp_path):
    path = tmp_path / "space.yaml"
    with pytest.raises(InputError, match="is not a file; check the path"):
        read_space(path)
    path.write_text(content)
    with pytest.raises(InputError, match=reason):
        read_space(path)


def test_values_reach_into_parts_and_leave_the_recipe_as_it_was():
    fields = {"training": {"epochs": 2}, "method": "sisa"}
    found = with_values(fields, {"training.seed": 1, "method.trainable": "all", "adapter.rank": 4})
    assert found == {
        "training": {"epochs": 2, "seed": 1},
        "method": {"name": "sisa", "trainable": "all"},
        "adapter": {"rank": 4},
    }
    assert fields == {"training": {"epochs": 2}, "method": "sisa"}
