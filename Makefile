# One command each; every target makes the environment that it needs with nothing but Python 3.11 and make.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := core[engine,server,testing] plugins/llava plugins/qwen_vl plugins/connectors plugins/demo[client]

.PHONY: install demo test check bench docs soak format

install: $(STAMP)

# --no-build-isolation: a build environment of its own for each package would take longer than everything else here.
$(STAMP): pyproject.toml constraints.txt core/pyproject.toml $(wildcard plugins/*/pyproject.toml)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation \
		$(foreach package,$(PACKAGES),--editable "$(package)")
	touch $(STAMP)

demo: install
	$(BIN)/python -m inset_demo

test: install
	$(BIN)/python -m pytest

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install
	$(BIN)/python -m benchmarks

docs: install
	$(BIN)/python docs/generate.py
	$(BIN)/python -m pytest tests/docs

soak: install
	$(BIN)/python -m pytest --override-ini "addopts=--import-mode=importlib" -m soak
