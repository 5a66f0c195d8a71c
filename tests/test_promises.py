"""What the project promises of itself: import direction, purity, sizes, names, docs."""

import ast
import importlib
import re
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

import s3t
from s3t.cli.app import app_of
from s3t.descriptions import descriptions_of
from s3t.recipe import Recipe, recipe_from
from s3t.recipe.schema import MethodSettings
from s3t.tasks import TASKS
from s3t_server.program import COMMANDS
from tests.deletion.places import PLACES

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "s3t"
SERVER = ROOT / "src" / "s3t_server"
FILES = sorted(SOURCE.rglob("*.py"))
SERVER_FILES = sorted(SERVER.rglob("*.py"))

# In the data's order. A room may import those before it in this list, and never those after it.
IN_ORDER = """
    errors core aftermath extras wording descriptions json_text version bugs events progress
    processes waiting program files results orders planning tasks recipe store records models
    training ledger prediction engine export deletion audit run tuning comparison harness drawing
    client cli
"""
ROOMS = IN_ORDER.split()
PURE = ["core", "orders", "planning", "recipe", "engine"]
PURE_FILES = ["deletion/holding.py", "tasks/aggregate.py", "export/engines.py", "prediction/answers.py"]
IMPURE = {"torch", "transformers", "peft", "safetensors", "sqlalchemy", "fastapi", "httpx", "requests", "pyarrow"}


@cache
def parsed(path):
    return ast.parse(path.read_text())


def imports_of(path, *, anywhere=False):
    """Modules that a file imports at its top level, outside `if TYPE_CHECKING`, or anywhere."""
    found = set()
    for node in ast.walk(parsed(path)) if anywhere else parsed(path).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


def packages_of(path, **how):
    return {module.partition(".")[0] for module in imports_of(path, **how)}


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_rooms_import_only_rooms_before_them():
    for path in FILES:
        room = room_of(path)
        if room not in ("__init__", "__main__"):
            others = {module.split(".")[1] for module in imports_of(path) if module.startswith("s3t.")}
            assert all(ROOMS.index(other) <= ROOMS.index(room) for other in others), (path, others)


def test_core_imports_no_other_room():
    for path in (SOURCE / "core").glob("*.py"):
        others = {module for module in imports_of(path, anywhere=True) if module.partition(".")[0] == "s3t"}
        assert all(module.startswith("s3t.core") for module in others - {"s3t.errors"}), path


def test_docs_list_the_rooms_in_their_order_and_the_pure_ones():
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Rooms")[2].partition("\n## ")[0]
    rooms = re.findall(r"(?m)^    ([a-z_]+) +(.+)$", text)
    assert [room for room, _ in rooms] == [room for room in ROOMS if (SOURCE / room).is_dir()]
    assert {room for room, says in rooms if says.endswith("; pure")} == set(PURE)


def test_pure_rooms_import_neither_torch_nor_sql_nor_http():
    for path in [path for path in FILES if room_of(path) in PURE] + [SOURCE / name for name in PURE_FILES]:
        assert not packages_of(path) & IMPURE, path


OUTSIDE = {"experiments", "benchmarks", "testing", "tests"}


def test_no_package_imports_an_experiment_benchmark_or_test_and_the_library_nothing_of_the_server():
    for path in FILES:
        assert not packages_of(path, anywhere=True) & (OUTSIDE | {"s3t_server"}), path
    for path in SERVER_FILES:
        assert not packages_of(path, anywhere=True) & OUTSIDE, path
    for path in (ROOT / "testing").glob("*.py"):
        assert not packages_of(path) & (OUTSIDE - {"testing"}), path


def test_the_server_uses_public_names_of_the_library_alone():
    for path in SERVER_FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "s3t":
                names = (*node.module.split("."), *(alias.name for alias in node.names))
                assert not any(name.startswith("_") for name in names), (path, names)
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "os", "row")
                assert own, f"{path}: {ast.unparse(node)}"


def test_no_assert_guards_input_nothing_is_named_after_nothing_and_every_module_has_a_docstring():
    for path in [*FILES, *SERVER_FILES]:
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(parsed(path))), path
        assert path.stem not in ("utils", "helpers", "common", "misc")
        assert ast.get_docstring(parsed(path)), path


PUBLIC = """
    Added AdditionEntry Audit Client ClosedError DataError Deletion EpochEnd Evaluation Event
    Exports Forecast ForkedError FsyncError InputError IntegrityError IsolationError
    KeyDestroyedError Likelihoods Location LogEntry MovedError NoLiveShardError OvertakenError
    PlanningError Predictions ProgressBar Query Recipe RecipeError Reconciliation RestoredError Run
    RunFolderError S3TError ServerError SettingError StageEnd StageStart Status StorageError Texts
    Training TrainingError TrainingStart UnknownNamesError WorkEnd WorkNote WorkStart WorkStep
    WorkWarning WorkerError __version__ load_recipe record_ids
"""


def test_every_public_name_loads_and_all_is_pinned():
    assert s3t.__all__ == PUBLIC.split()
    for name in s3t.__all__:
        assert getattr(s3t, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        s3t.nonsense  # noqa: B018


@pytest.mark.parametrize("statement", ["import s3t", "import s3t.cli", "from s3t import Run"])
def test_importing_and_opening_need_no_torch(statement):
    code = f"{statement}; import sys; print(sorted({{'torch', 'transformers', 'peft'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_public_has_a_docstring():
    for name in sorted(set(s3t.__all__) - {"__version__"}):
        public = getattr(s3t, name)
        assert public.__doc__, name
        assert not public.__doc__.startswith(f"{name}("), f"{name} has only what `dataclass` writes"
        for member, value in vars(public).items() if isinstance(public, type) else ():
            own = getattr(value, "fget", None) or getattr(value, "__func__", value)
            if not member.startswith("_") and callable(own):
                assert own.__doc__, f"{name}.{member}"


def test_the_module_docstring_of_errors_draws_the_whole_tree():
    errors = importlib.import_module("s3t.errors")
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, Exception):
            assert name in errors.__doc__


def fields_of(model):
    described = descriptions_of(model)
    for name, field in model.model_fields.items():
        yield name, described[name]
        inner = field.annotation
        if isinstance(inner, type) and hasattr(inner, "model_fields"):
            yield from fields_of(inner)


def test_docs_name_every_field_of_the_recipe():
    text = (ROOT / "docs" / "recipe.md").read_text()
    for name, description in (*fields_of(Recipe), *fields_of(MethodSettings)):
        assert f"`{name}`" in text, name
        assert description, name


def test_docs_name_every_task():
    text = (ROOT / "docs" / "recipe.md").read_text().partition("## Tasks")[2].partition("## ")[0]
    described = descriptions_of(Recipe)["task"]
    for name in TASKS:
        assert f"`{name}`" in text, name
        assert name in described, name


def test_docs_list_every_command_and_its_help_tells_every_option():
    table = (ROOT / "docs" / "cli.md").read_text().partition("\n## ")[0]
    app = app_of(COMMANDS)
    commands = typer.main.get_command(app).commands
    assert sorted(re.findall(r"`s3t ([a-z-]+)`", table)) == sorted(commands)
    for name, command in commands.items():
        told = "".join(CliRunner().invoke(app, [name, "--help"]).stdout.split())
        for parameter in command.params:
            assert "".join(parameter.help.split()) in told, f"{name} {parameter.name}"
            for option in parameter.opts:
                assert option in told or not option.startswith("--"), f"{name} {option}"


def test_docs_have_the_list_of_places_that_can_hold_a_record():
    text = (ROOT / "docs" / "guarantees.md").read_text()
    assert "labels: infer" in text  # the gap
    (without,) = re.findall(r"^(.*) hold nothing of a record\.", text, flags=re.M)
    for place in PLACES:
        if place.holds == "nothing":
            assert f"`{place.pattern}`" in without, place.name
            continue
        assert place.pattern in text, place.name
        assert f"{place.where} | {place.holds} | {place.erased or 'not at all'} |" in text.replace("`", ""), place.name
    assert without.count("`") == 2 * sum(place.holds == "nothing" for place in PLACES)


def test_every_recipe_in_the_docs_loads():
    seen = 0
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for block in path.read_text().split("```yaml\n")[1:]:
            content = yaml.safe_load(block.partition("```")[0])
            if isinstance(content, dict) and "task" in content:
                recipe_from(content, where=str(path))
                seen += 1
    assert seen


def anchors_of(page):
    """Names of a page's headings, as links name them, and of its anchors."""
    text = re.sub(r"(?s)```.*?```", "", page.read_text())
    headings = re.findall(r"(?m)^#+ (.*)$", text)
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="([^"]+)"', text))


def test_links_in_the_docs_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    for page in pages:
        for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
            if "://" not in target:
                other = page.parent / target if target else page
                assert other.exists(), f"{page.name}: {target}"
                assert not anchor or anchor in anchors_of(other), f"{page.name}: {target}#{anchor}"


def test_the_package_builds_and_carries_its_types_and_licence(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    files = [path for folder in ("templates", "static") for path in (SERVER / "page" / folder).rglob("*.*")]
    assert {"s3t/py.typed", *(str(path.relative_to(SOURCE.parent)) for path in files)} <= set(names)
    assert len(files) > 10
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert s3t.__version__ in wheel.name
    assert not any(name.startswith(tuple(f"{name}/" for name in OUTSIDE)) for name in names)
