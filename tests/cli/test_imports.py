"""What each command imports, of what is slow to import: a short command takes as long as its imports."""

import json
import subprocess
import sys

import pytest

from testing import tiny

LEDGER = {"sqlalchemy", "asyncio"}
"""SQLAlchemy imports asyncio."""
OPENED = {*LEDGER, "yaml", "pydantic", "numpy"}
TABLES = {*OPENED, "pyarrow", "pyarrow.compute"}
PLANNED = {"numpy", "scipy", "yaml", "pydantic"}
MODEL = {"torch", "transformers", "peft", "accelerate", "pandas", "PIL", "scipy", "sklearn", "psutil"}
PREDICTING = {"s3t.models", "s3t.training", "s3t.records.reading"}
OTHERS = {"datasets", "matplotlib", "optuna", "psycopg", "rich.console", "rich.progress"}
SLOW = TABLES | PLANNED | MODEL | PREDICTING | OTHERS | {"sqlalchemy.dialects.postgresql"}
COMMANDS = {
    "--help": set(),
    "status RUN": {*OPENED, "rich.console"},
    "status RUN --json": OPENED,
    "locate RUN --record r1": OPENED,
    "locate RUN --record nobody": TABLES,
    "erase RUN --json": TABLES,
    "delete RUN --record r2 --dry-run": {*OPENED, "rich.console"},
    "delete RUN --record r3": {*OPENED, "pyarrow", "rich.console"},
    "reconcile RUN --json": TABLES,
    "ids FILE --recipe RECIPE": {*TABLES, "PIL", "pandas", "s3t.records.reading"},
    "sequences --slices 4 --budget 4": {*PLANNED, "rich.console"},
    "sequences --slices 4 --budget 4 --plot PICTURE": {*PLANNED, "rich.console", "matplotlib", "PIL"},
    "simulate --shards 2 --slices 3 --budget 2 --trials 10 --json": {*PLANNED, "rich.console"},
    "predict RUN --text w1 --json": {*TABLES, *MODEL, "rich.console", *PREDICTING},
}
"""Commands, and what of `SLOW` each may import."""
PROGRAM = (
    "import json, sys",
    "from s3t_server.program import main",
    "try: main()",
    "finally: print(json.dumps(sorted(sys.modules)), file=sys.stderr)",
)


@pytest.fixture(scope="module")
def names(tmp_path_factory, made):
    folder = tmp_path_factory.mktemp("imports")
    return {
        "RUN": str(tiny.copy_run(made / "run", folder / "run")),
        "FILE": str(made / "records.csv"),
        "RECIPE": str(made / "recipe.yaml"),
        "PICTURE": str(folder / "orders.png"),
    }


@pytest.mark.integration
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_nothing_slow_that_it_does_not_use(names, command):
    arguments = [names.get(word, word) for word in command.split()]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(PROGRAM), *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout
    modules = set(json.loads(done.stderr.splitlines()[-1]))
    assert "s3t.cli.app" in modules
    assert (modules & SLOW) - COMMANDS[command] == set()
