# `make demo` shows the main job; `make test` passes every check. Both set up the machine by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check lint format clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet torch
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --editable '.[dev,serve]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python examples/toy_pairs.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2

check: lint
	$(BIN)/pytest -n 2 -m "not slow"

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build dist src/*.egg-info
