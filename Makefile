# make demo    the main job, self-contained (about two minutes after installation)
# make test    lint, types, tests
# make test-integration   tests that start servers or many processes, or train longer; CI runs both
# make test-slow   thousands of faults; every listed mistake; real data in S3T_DATA (default ../shared/data)
# make bench   the committed benchmarks
# make experiments   the paper's figures and results again (hours; goes on where it was stopped)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
S3T_DATA ?= $(abspath ../shared/data)
export S3T_DATA

.PHONY: demo test test-integration test-slow lint types bench experiments clean

$(VENV)/pip.stamp:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/demo.stamp: $(VENV)/pip.stamp pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[plots]"
	touch $@

$(VENV)/test.stamp: $(VENV)/pip.stamp pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $@ $(VENV)/demo.stamp

demo: $(VENV)/demo.stamp
	$(BIN)/python examples/digits.py runs/demo

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/test.stamp
	$(BIN)/mypy

# A file's tests share the runs that it trains, so they go to one process.
test: lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder \
		--durations 20 -m "not slow and not integration"

test-integration: $(VENV)/test.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --durations 20 -m "integration and not slow"

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
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.ensemble
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.commands
	$(BIN)/python -m benchmarks.together

experiments: $(VENV)/test.stamp
	$(BIN)/python -m experiments.small_llama
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments all

clean:
	rm -rf $(VENV) runs build dist
