"""The list of mistakes stays true as the code moves; the campaign itself is slow."""

import ast
import os
from collections import defaultdict
from functools import cache

import pytest

from tests.mutations.campaign import sound, try_out
from tests.mutations.catalogue import ROOT, SOURCE, mutations

MUTATIONS = mutations()


def test_every_mistake_can_be_planted_where_it_is_said_to_be():
    problems, planted = [], defaultdict(list)
    for mutation in MUTATIONS.values():
        try:
            assert mutation.planted(content(mutation.file)) != content(mutation.file), mutation.name
        except ValueError as error:
            problems.append(f"{mutation.name} ({mutation.room}.toml): {error}")
            continue
        for number, other in enumerate([*planted[mutation.file], content(mutation.file)]):
            if other.count(mutation.old) == 1:  # parsing is slow: one file has several mistakes at once
                planted[mutation.file][number : number + 1] = [mutation.planted(other)]
                break
    assert problems == []
    for contents in planted.values():
        for each in contents:
            ast.parse(each)


@cache
def content(file):
    return (ROOT / SOURCE / file).read_text()


@cache
def functions(path):
    """Tests of a file that `make test` runs, at least in part."""
    tree = ast.parse((ROOT / path).read_text())
    marks = {"pytest.mark.integration", "pytest.mark.slow"}
    if any(ast.unparse(node) in {f"pytestmark = {mark}" for mark in marks} for node in tree.body):
        return set()
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {node.name for node in found if marks.isdisjoint(map(ast.unparse, node.decorator_list))}


def test_every_mistake_names_tests_that_make_test_runs():
    named = [(name, test) for name, mutation in MUTATIONS.items() for test in mutation.tests]
    assert {name for name, _ in named} == MUTATIONS.keys()
    assert [(name, test) for name, test in named if test.split("::")[1] not in functions(test.split("::")[0])] == []


def test_a_mistake_whose_place_has_changed_is_named():
    mutation = next(iter(MUTATIONS.values()))
    with pytest.raises(ValueError, match=f"{mutation.name}: its old text occurs 0 times"):
        mutation.planted("something else")


@pytest.mark.slow
def test_every_mistake_is_caught_by_its_tests():
    """Half an hour on two cores. `S3T_MUTATIONS=a,b` plants some alone."""
    chosen = [MUTATIONS[name] for name in os.environ.get("S3T_MUTATIONS", ",".join(MUTATIONS)).split(",")]
    output = sound(chosen)
    assert output is None, output
    results = []
    for mutation in chosen:
        results.append(try_out(mutation))
        print(results[-1], flush=True)
    assert [str(result) for result in results if result.verdict != "caught"] == []
