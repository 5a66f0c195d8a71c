"""What the program sets for its own process, and never overrides."""

import os
import resource
import subprocess
import sys

import pytest

CODE = (
    "import os, resource, sys; from s3t.program import set_up_process; set_up_process();"
    "print(os.environ['THP_MEM_ALLOC_ENABLE'], *resource.getrlimit(resource.RLIMIT_CORE), 'torch' in sys.modules)"
)


def printed(code, **options):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **options).stdout


@pytest.mark.parametrize(("before", "after"), [({}, "1"), ({"THP_MEM_ALLOC_ENABLE": "0"}, "0")])
def test_core_dumps_are_forbidden_and_large_pages_asked_for_unless_the_user_has_said_otherwise(before, after):
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"} | before
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert printed(CODE, env=environment).split() == [after, "0", str(hard), "False"]


GARBAGE = """
import gc
from s3t.program import set_up_process

usual = gc.get_threshold()
set_up_process()
before = gc.get_stats()[0]["collections"]
made = [[] for _ in range(100_000)]
print(gc.get_stats()[0]["collections"] - before)
made += [[] for _ in range(150_000)]
print(gc.get_threshold() == usual, gc.callbacks)
"""


def test_the_first_search_for_garbage_waits_until_modules_are_imported_and_later_ones_do_not():
    assert printed(GARBAGE).splitlines() == ["0", "True []"]


QUANTISED = """
import sys
from s3t.program import set_up_process

set_up_process()
import s3t.models.blocks
print("peft" in sys.modules, "bitsandbytes.functional" in sys.modules)
from s3t.models.quantized import functional, missing_package
print(missing_package(), functional().__name__)
"""


@pytest.mark.integration
def test_bitsandbytes_is_imported_for_quantised_bases_alone():
    pytest.importorskip("bitsandbytes")
    assert printed(QUANTISED).splitlines() == ["True False", "None bitsandbytes.functional"]


FINALISER = """
import os, signal, time
from s3t.program import exit_on_sigterm

class Slow:
    def __del__(self):
        os.kill(os.getpid(), getattr(signal, %r))
        time.sleep(0.01)

signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored
exit_on_sigterm()
slow = Slow()
try:
    del slow
    time.sleep(10)
    print("it goes on")
except KeyboardInterrupt:
    raise SystemExit(7)
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 7)])
def test_a_signal_while_an_object_is_finalised_ends_the_program_without_a_traceback(name, code):
    """Python would print the exception and go on."""
    done = subprocess.run([sys.executable, "-c", FINALISER % name], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
