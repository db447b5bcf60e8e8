# `make demo` shows the bundled model; `make test` runs every check. Both install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LIGHT := .venv-light

.PHONY: demo test check light lint browser docs format clean reproduce-translation reproduce-representation

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet torch
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --editable '.[dev,docs,serve,train,pictures,gguf,distill,export]'
	touch $(STAMP)

# inference only: no torch, no transformers
$(BIN)/kermit:
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --editable .

demo: $(BIN)/kermit
	$(BIN)/python examples/quickstart.py

# a separate environment without torch, in which every inference verb is run
light: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(LIGHT)
	PIP_CONSTRAINT=constraints.txt $(LIGHT)/bin/python -m pip install --quiet --editable .
	$(LIGHT)/bin/python tests/light_install.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# for the tests of the page, which are skipped without a browser
browser:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && { apt-get update; DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; } \
	  >/dev/null 2>&1; } || echo "Chromium is not installed: the tests of the page will be skipped"

# the site in build/site; warnings are errors, and nothing is downloaded
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test: lint browser docs light
	$(BIN)/pytest -n 2

check: lint
	$(BIN)/pytest -n 2 -m "not slow"

# Trains, distils and scores every row of the translation table, which takes hours; it can be stopped and resumed at any
# time. PRECISION=bfloat16 takes less than half the time on CPUs that support it; ONLY="joint" selects recipes and what
# they start from. Models in checkpoints/multi30k are not trained again unless ANEW=1.
reproduce-translation: $(STAMP)
	$(BIN)/python benchmarks/reproduce_translation.py $(if $(KERMIT_DATA),--data $(KERMIT_DATA)) $(if $(KERMIT_RUNS),--runs $(KERMIT_RUNS)) $(if $(ONLY),--only $(ONLY)) $(if $(PRECISION),--precision $(PRECISION)) $(if $(ANEW),--anew)

# Pretrains, finetunes on GLUE and evaluates cloze questions, which takes hours; it can be stopped and resumed at any
# time. ONLY="glue:kermit" selects stages by prefix, PLAN=1 lists them with the minutes of GLUE's tasks, and
# PRECISION=bfloat16 is faster on CPUs that support it.
reproduce-representation: $(STAMP)
	$(BIN)/python benchmarks/reproduce_representation.py $(if $(KERMIT_DATA),--data $(KERMIT_DATA)) $(if $(KERMIT_RUNS),--runs $(KERMIT_RUNS)) $(if $(ONLY),--only $(ONLY)) $(if $(PRECISION),--precision $(PRECISION)) $(if $(PLAN),--plan)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(LIGHT) .mypy_cache .ruff_cache .pytest_cache build dist src/*.egg-info
