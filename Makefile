# `make` prints the targets. Each sets up .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One process more than cores, because some tests wait; the tests of a file in one process, so that
# they share what is made for them once.
PROCESSES := $(shell $(PYTHON) -c 'import os; print(1 + os.cpu_count())')
# What Python has compiled is kept, because to rewrite the assertions of all tests takes each process
# ten seconds.
KEPT := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/build/pycache
PYTEST := $(KEPT) $(BIN)/pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder \
	--max-worker-restart 0

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-gpu format bench build clean

help: ## print the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 19

$(VENV)/installed: pyproject.toml setup.py constraints.txt $(wildcard mtkit/native/src/* mtkit/native/src/*/*)
	$(PYTHON) -c 'import sys; sys.exit("mtkit needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Other implementations to compare with, which nobody needs to use mtkit.
$(VENV)/compared: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,bench]'
	@touch $@

demo: $(VENV)/installed ## prepare the demo corpus, train on it, translate three sentences, score
	$(BIN)/mtkit prepare demo-en-de --force
	$(BIN)/mtkit train --config demo --restart
	$(BIN)/mtkit translate --run runs/demo-en-de-demo < examples/demo/input.txt
	$(BIN)/mtkit score --run runs/demo-en-de-demo

# Types are checked while the tests run.
test: $(VENV)/compared ## format and lint checks, types, and the tests that every change needs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@mkdir -p build
	$(BIN)/mypy > build/mypy.txt 2>&1 & $(PYTEST) -m "not slow and not gpu"; tests=$$?; \
		wait $$!; types=$$?; cat build/mypy.txt; exit $$((tests + types))

test-slow: $(VENV)/compared ## the tests that take long: more repetitions, larger models
	$(PYTEST) -m slow

test-gpu: $(VENV)/compared ## the tests of a GPU, in one process (docs/gpu.md)
	$(BIN)/pytest -m gpu

format: $(VENV)/installed ## format the code and fix what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/compared ## time a training step, decoding and layers (benchmarks/README.md)
	$(BIN)/python benchmarks/agreement.py
	$(BIN)/python benchmarks/cpu.py
	$(BIN)/python benchmarks/layers.py

build: $(VENV)/installed ## build the wheel, install it alone, run the demo from it
	rm -rf dist build/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	build/wheel/bin/mtkit --help
	cd build/wheel && bin/mtkit prepare demo-en-de --force && bin/mtkit train --config demo --restart \
		&& bin/mtkit translate < ../../examples/demo/input.txt && bin/mtkit score

clean: ## delete the environment and everything built (not data/ and runs/)
	rm -rf $(VENV) build dist *.egg-info
