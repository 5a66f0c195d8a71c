"""Errors travel between processes as they are."""

import pickle

import pytest

from s3t import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.S3TError)]


def made(kind):
    if kind is errors.SettingError:
        return kind("one", "two")
    if issubclass(kind, errors.InputError):
        return kind("recipe.yaml", ["one", "two"])
    if kind is errors.UnknownNamesError:
        return kind(["one", "two"], asked=3)
    return kind("what, which and the remedy")


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_was_pickled_is_of_the_same_kind_and_says_the_same(kind):
    error = made(kind)
    error.add_note("in worker process 1")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.args, vars(again)) == (str(error), error.args, vars(error))
    assert again.__notes__ == ["in worker process 1"]


def test_one_problem_needs_no_list():
    assert str(errors.InputError("data.csv", "is empty")) == str(errors.InputError("data.csv", ["is empty"]))
    assert errors.InputError("data.csv", "is empty").problems == ("is empty",)
