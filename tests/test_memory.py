"""Memory that a process of ours has freed is there for the next step."""

import os
import subprocess
import sys

import pytest

STEPS = """
import resource, sys
if sys.argv[1] == "kept":
    from s3t.memory import keep_freed_memory
    keep_freed_memory()
import torch
def step():
    tensors = [torch.ones(5 * 2**20) for _ in range(10)]  # 200 MB, each of 20 MB
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def of_a_step():
    before = faults()
    step()
    return faults() - before
print(min(of_a_step() for _ in range(9)))
"""


def faults(how):
    """Page faults of a step, once memory lies as it stays; with large pages, for then what happens without does not
    hang on addresses."""
    environment = os.environ | {"THP_MEM_ALLOC_ENABLE": "1"}
    command = [sys.executable, "-c", STEPS, how]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_a_step_takes_the_memory_of_the_step_before():
    kept, given_back = faults("kept"), faults("given back")
    assert given_back > 800
    assert kept < 80


@pytest.mark.parametrize(("before", "after"), [({}, "1"), ({"THP_MEM_ALLOC_ENABLE": "0"}, "0")])
def test_large_pages_are_asked_for_unless_the_user_has_said_otherwise(before, after):
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"} | before
    code = (
        "import os, sys; from s3t.memory import keep_freed_memory; keep_freed_memory();"
        "print(os.environ['THP_MEM_ALLOC_ENABLE'], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == [after, "False"]
