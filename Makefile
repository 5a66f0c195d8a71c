# make demo    the main job, self-contained (about two minutes after installation)
# make serve   the demo's run behind HTTP, with its page (trains it first if need be); PORT=8080
# make test    lint, types, tests
# make test-integration   tests that start servers or many processes, or train longer; CI runs both
# make test-slow   thousands of faults; every listed mistake; real data in S3T_DATA (default ../shared/data)
# make pictures   pictures of the page, of the demo's run
# make bench   the committed benchmarks
# make experiments   the paper's figures and results again (hours; goes on where it was stopped)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
S3T_DATA ?= $(abspath ../shared/data)
export S3T_DATA

.PHONY: demo serve pictures browser test test-integration test-slow lint types bench experiments clean

$(VENV)/pip.stamp:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/demo.stamp: $(VENV)/pip.stamp pyproject.toml constraints.txt
	$(BIN)/python -m pip install --constraint constraints.txt --editable ".[plots]"
	touch $@

$(VENV)/test.stamp: $(VENV)/pip.stamp pyproject.toml constraints.txt
	$(BIN)/python -m pip install --constraint constraints.txt --editable ".[test]"
	touch $@ $(VENV)/demo.stamp $(VENV)/serve.stamp

demo: $(VENV)/demo.stamp
	$(BIN)/python examples/digits.py runs/demo

$(VENV)/serve.stamp: $(VENV)/pip.stamp pyproject.toml constraints.txt
	$(BIN)/python -m pip install --constraint constraints.txt --editable ".[plots,serve]"
	touch $@

serve: $(VENV)/serve.stamp
	$(BIN)/python examples/serve.py runs/demo

# The pictures of the page in README and docs, of the demo's run.
pictures: $(VENV)/test.stamp browser
	PYTHONPATH=. $(BIN)/python examples/page_pictures.py runs/demo

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/test.stamp
	$(BIN)/mypy

# Keep tests' files in memory if there is room: else they wait for thousands of fsyncs. Failing disks are simulated.
MEMORY = $(shell test "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 8000000 2>/dev/null && echo TMPDIR=/dev/shm)

# A file's tests share the runs that it trains, so they go to one process.
test: lint types
	$(MEMORY) OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder \
		--durations 20 -m "not slow and not integration"

# Tests of the page need a browser; where none can be installed, they are skipped and say so.
APT = $(if $(filter 0,$(shell id -u)),,sudo -n) env DEBIAN_FRONTEND=noninteractive apt-get
browser: $(VENV)/pip.stamp
	@$(BIN)/python -c "import sys; from testing.browser import browser_path; sys.exit(browser_path() is None)" \
		|| ($(APT) update -qq && $(APT) install -qq -y --no-install-recommends chromium) \
		|| echo "no browser could be installed: tests of the page will be skipped"

test-integration: $(VENV)/test.stamp browser
	$(MEMORY) OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --durations 20 -m "integration and not slow"

test-slow: $(VENV)/test.stamp
	$(BIN)/python -m pytest -m slow -s

bench: $(VENV)/test.stamp
	$(BIN)/python -m benchmarks.deletion
	$(BIN)/python -m benchmarks.ledger
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.sequences
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.forests
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.training
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.data_sets
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.deep
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.language
	$(BIN)/python -m benchmarks.scaling
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.scaleout
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.ensemble
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.commands
	$(BIN)/python -m benchmarks.together
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.service
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.steady_rate
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.ridge

experiments: $(VENV)/test.stamp
	$(BIN)/python -m experiments.small_llama
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments all

clean:
	rm -rf $(VENV) runs build dist
