# Each target creates the virtual environment that it needs. `make` alone lists the targets.

PYTHON ?= python3# Python 3.11 or newer
ATTENTION ?= bahdanau# a preset: the name of a file in conf/attention
OVERRIDES ?=# of train.py, as in: make train OVERRIDES="trainer.max_epochs=1 seed=3"
TEXT ?= Where is the library?# what `make translate` translates
RUN ?= $(shell ls -td runs/train/* 2>/dev/null | head -n 1)# a run folder; default: the newest
TEST_WORKERS ?= 2# processes of pytest-xdist, each of which takes whole files, with what their tests share; 0: no extra process
VENV := .venv
export TEXT
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help train translate test test-slow test-gpu test-others lint types check check-page docs nightly dist format clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 18

train: $(VENV)/.installed ## train on the included corpus: make train ATTENTION=luong_general
	$(VENV)/bin/python train.py attention=$(ATTENTION) $(OVERRIDES)
	@echo 'With make: make translate TEXT="Where is the library?"'

translate: $(VENV)/.installed ## translate with the newest run, or RUN=FOLDER: make translate TEXT="Where is the library?"
	printf '%s\n' "$$TEXT" | $(VENV)/bin/python translate.py ckpt_path=$(or $(RUN),runs/train)

test: $(VENV)/.installed-dev ## run all tests but the slow ones
	$(VENV)/bin/python -m pytest -n $(TEST_WORKERS) --dist loadfile

test-slow: $(VENV)/.installed-dev ## run the slow tests: those that take more than a second, or repeat a quick one for another case
	$(VENV)/bin/python -m pytest -m 'slow and not gpu'

test-gpu: $(VENV)/.installed-dev ## run the tests that need a GPU
	$(VENV)/bin/python -m pytest -m gpu

test-others: $(VENV)/.installed-others ## compare attentions with packages that others wrote, which it installs
	$(VENV)/bin/python -m pytest tests/attention/others

lint: $(VENV)/.installed-dev ## check format, lint and import layers
	$(VENV)/bin/python -m ruff format --check
	$(VENV)/bin/python -m ruff check
	$(VENV)/bin/python -m scripts.checks.import_layers

types: $(VENV)/.installed-dev ## check types
	$(VENV)/bin/python -m mypy

check: lint types test ## check format, lint, types and import layers, and run the tests: what a commit must pass

check-page: $(VENV)/.installed-page ## check format and lint of the explorer's page, with Biome, which it installs (49 MB)
	$(VENV)/bin/biome check

docs: $(VENV)/.installed-docs ## build the documentation site into build/docs/html
	$(VENV)/bin/python -m scripts.docs

nightly: check docs test-slow ## run what CI runs at night: the checks, the documentation and all tests, the slow ones too

dist: $(VENV)/.installed-dist ## build the wheel and the source distribution in dist/, and check both
	rm -rf dist
	$(VENV)/bin/python -m build
	$(VENV)/bin/python -m twine check --strict dist/*
	$(VENV)/bin/check-wheel-contents dist/*.whl

format: $(VENV)/.installed-dev ## format the code and fix what lint can fix
	$(VENV)/bin/python -m ruff check --fix
	$(VENV)/bin/python -m ruff format

clean: ## remove the virtual environment and the caches; runs are kept
	rm -rf $(VENV) .pytest_cache .hypothesis .mypy_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install -c constraints.txt -e '.[tensorboard,wandb]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install -c constraints.txt -e '.[dev]'
	touch $(VENV)/.installed $@

$(VENV)/.installed-others: $(VENV)/.installed-dev
	$(VENV)/bin/python -m pip install -c constraints.txt -e '.[others]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	$(VENV)/bin/python -m pip install -c constraints.txt -e '.[docs]'
	touch $@

$(VENV)/.installed-page: $(VENV)/.installed-dev
	$(VENV)/bin/python -m pip install -c constraints.txt -e '.[page]'
	touch $@

$(VENV)/.installed-dist: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install -c constraints.txt build twine check-wheel-contents
	touch $@
