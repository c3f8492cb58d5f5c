# Every target makes the virtual environment that it needs; `make` alone lists the targets.

PYTHON ?= python3# any Python from 3.11 on
ATTENTION ?= bahdanau# a file of conf/attention
OVERRIDES ?=# of train.py, as in: make train OVERRIDES="trainer.max_epochs=1 seed=3"
TEST_WORKERS ?= 2# 0: none beside pytest itself
VENV := .venv
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help train test test-slow check nightly format clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 18

train: $(VENV)/.installed ## train on the small corpus of the repository: make train ATTENTION=sparse
	$(VENV)/bin/python train.py attention=$(ATTENTION) $(OVERRIDES)

test: $(VENV)/.installed-dev ## run the tests, but for the slow ones
	$(VENV)/bin/python -m pytest -n $(TEST_WORKERS)

test-slow: $(VENV)/.installed-dev ## run the tests that take minutes
	$(VENV)/bin/python -m pytest -m slow

check: $(VENV)/.installed-dev ## format, lint, types, import layers, tests: all that a commit must pass
	$(VENV)/bin/python -m ruff format --check
	$(VENV)/bin/python -m ruff check
	$(VENV)/bin/python -m mypy
	$(VENV)/bin/python -m scripts.checks.import_layers
	$(VENV)/bin/python -m pytest -n $(TEST_WORKERS)

nightly: check test-slow ## what CI runs at night: the checks and every test, the slow ones too

format: $(VENV)/.installed-dev ## format the code and mend what lint can mend
	$(VENV)/bin/python -m ruff check --fix
	$(VENV)/bin/python -m ruff format

clean: ## remove the virtual environment and the caches, but never a run
	rm -rf $(VENV) .pytest_cache .hypothesis .mypy_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install -c constraints.txt -e '.[dev]'
	touch $(VENV)/.installed $@
