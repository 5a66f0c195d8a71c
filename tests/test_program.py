"""What the program sets for its own process, and never overrides."""

import os
import subprocess
import sys

import pytest

CODE = (
    "import os, resource, sys; from s3t.program import set_up_process; set_up_process();"
    "print(os.environ['THP_MEM_ALLOC_ENABLE'], *resource.getrlimit(resource.RLIMIT_CORE), 'torch' in sys.modules)"
)


@pytest.mark.parametrize(("before", "after"), [({}, "1"), ({"THP_MEM_ALLOC_ENABLE": "0"}, "0")])
def test_core_dumps_are_forbidden_and_large_pages_asked_for_unless_the_user_has_said_otherwise(before, after):
    import resource

    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"} | before
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, env=environment)
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert done.stdout.split() == [after, "0", str(hard), "False"]
