"""Branches on tasks, methods and kinds of stages are counted in code of both checkouts, old and new."""

import ast
from dataclasses import fields

import pytest

from benchmarks.checkouts import ASKED, HOMES, branches_in, code_of
from s3t.core import Method
from s3t.tasks import Target
from s3t.tasks.task import Inputs

BRANCHES = {
    "x = 1 if recipe.task.is_regression else 2": {"task": 1},  # as at c61738f
    "if self.method.has_prototypes and self.task.is_regression: ...": {"task": 1, "method": 1},
    "kind = A if recipe.method.trainable == 'all' else B": {"method": 1},
    "if recipe.method != Method(): ...": {"method": 1},
    "return_ = stage.chain if method.blockwise else (stage,)": {"method": 1},
    "if not recipe.task.target.over_vocabulary: ...": {"task": 1},  # as now
    "wide = self._recipe.task.target.over_vocabulary\nif wide_or(self._over_vocabulary): ...": {"task": 1},
    "size = A if recipe.task.inputs.kind == 'image' else B": {"task": 1},
    "outputs = None if recipe.task.model == NAME else C": {"task": 1},
    "if recipe.method.options.trainable == 'all' and not asked.merge: ...": {"method": 1},
    "models = [stage for stage in stages if stage.kind == 'model']": {"kind of a stage": 1},
    "match task.name:\n    case 'x': ...": {"task": 1},
    "return_ = a if task == 'x' else b if method.one_order else c": {"task": 1, "method": 1},
    "while x and (y or method.one_slice): ...": {"method": 1},
}
NONE = [
    "return_ = table.cells(name, column_types.is_text) or ()",
    "if is_text(column): ...",
    "if types.is_regression(kind): ...",
    '"""A note: if task == x, or is_text."""',
    "# if recipe.task.is_text\nx = 1",
    "recipe.task.check_answers('score')",
    "sizes = MODELS[recipe.method.options.trainable], recipe.task.inputs.window_rows",
    "if adapter.kind == 'ia3': ...",
    "if recipe.task is None: ...",
    "class Target:\n    def outputs(self): return 1 if self.has_labels else 2",
]


@pytest.mark.parametrize("code", BRANCHES)
def test_a_condition_that_asks_which_task_or_method_it_is_counts_once(code):
    assert branches_in(ast.parse(code)) == BRANCHES[code]


@pytest.mark.parametrize("code", NONE)
def test_nothing_else_counts(code):
    assert not branches_in(ast.parse(code))


def test_tasks_methods_and_stages_may_ask_themselves(tmp_path):
    code = "if task.has_labels or method.one_order or stage.kind: ..."
    for room in {*HOMES.values(), "run"}:
        (tmp_path / room).mkdir()
        (tmp_path / room / "code.py").write_text(code)
    found = code_of(tmp_path)
    assert {what: found[f"branches on the {what}"] for what in ASKED} == dict.fromkeys(ASKED, 2)


@pytest.mark.parametrize(("what", "kind"), [("task", Inputs), ("task", Target), ("method", Method)])
def test_all_that_tells_one_task_or_method_from_another_is_known(what, kind):
    names = {field.name for field in fields(kind) if field.type == "bool"}
    names |= {name for name, value in vars(kind).items() if isinstance(value, property) and returns_bool(value)}
    assert names <= {name.rpartition(".")[2] for name in ASKED[what]}


def returns_bool(value):
    return value.fget.__annotations__["return"] == "bool"
