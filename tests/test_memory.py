"""Memory that a process of ours has freed is there for the next step."""

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
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how):
    """Page faults in five steps."""
    done = subprocess.run([sys.executable, "-c", STEPS, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="of glibc")
def test_a_step_takes_the_memory_of_the_step_before():
    kept, given_back = faults("kept"), faults("given back")
    assert given_back > 4000
    assert kept < 400
