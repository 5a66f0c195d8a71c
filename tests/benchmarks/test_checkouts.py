"""Branches on tasks, methods and kinds of stages are counted in code of both checkouts, old and new."""

import ast
from dataclasses import fields

import pytest

from benchmarks.checkouts import ASKED, HOMES, branches_in, code_of
from s3t.core import Method
from s3t.tasks import Target
from s3t.tasks.task import Inputs

BRANCHES = {
    "x = 1 if recipe.task.is_regression else 2": {"task": 1},
    "if self.method.has_prototypes and self.task.is_regression: ...": {"task": 1, "method": 1},
    "if recipe.method != Method(): ...": {"method": 1},
    "wide = self._recipe.task.target.over_vocabulary\nif wide_or(self._over_vocabulary): ...": {"task": 1},
    "models = [stage for stage in stages if stage.kind == 'model']": {"kind of a stage": 1},
    "match task.name:\n    case 'x': ...": {"task": 1},
    "while x and (y or method.one_slice): ...": {"method": 1},
    "return_ = table.cells(name, column_types.is_text) or ()": {},
    "if types.is_regression(kind): ...": {},
    '"""A note: if task == x, or is_text."""': {},
    "if adapter.kind == 'ia3': ...": {},
    "if recipe.task is None: ...": {},
    "class Target:\n    def outputs(self): return 1 if self.has_labels else 2": {},
}


@pytest.mark.parametrize("code", BRANCHES)
def test_a_condition_that_asks_which_task_or_method_it_is_counts_once_and_nothing_else_does(code):
    assert branches_in(ast.parse(code)) == BRANCHES[code]


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
    own = {name: value.fget.__annotations__["return"] for name, value in vars(kind).items() if type(value) is property}
    names |= {name for name, returned in own.items() if returned == "bool"}
    assert names <= {name.rpartition(".")[2] for name in ASKED[what]}
