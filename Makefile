# Two commands matter: `make run` and `make test`. Both make `.venv` first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := llmgw/router/native/built.json
PASS := llmgw/router/native/pass/built.json
APART := tests/console tests/unit
AGAIN := $(BIN)/python -m pytest -rA --last-failed --last-failed-no-failures none

.PHONY: setup native run test check format lint types contracts unit bench soak proto snapshots reference followed clean

setup: $(STAMP) $(PASS)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else "llmgw needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is %d.%d: say make PYTHON=python3.12" % v)'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "the venv module of $(PYTHON) is missing: install it (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

# Builds the way of a token, C. Where there is no C compiler it says so, and tokens pass in Python.
$(PASS): $(STAMP) $(wildcard llmgw/router/csrc/*)
	$(BIN)/python -m llmgw.router.build --pass-only

# Compiles the router's busy modules. Where there is no C compiler it says so, and the router runs as plain Python.
native: $(NATIVE)

$(NATIVE): $(STAMP) $(wildcard llmgw/router/*.py llmgw/core/*.py)
	$(BIN)/python -m llmgw.router.build

run: setup
	$(BIN)/llmgw demo

# The console's tests and the units share nothing, so they run on every core; the others share clusters.
# What failed is run once more by itself and named: a fault fails twice, and a test torn by a busy machine is still seen.
test: setup
	$(BIN)/python -m pytest -n auto --maxprocesses 4 $(APART) || $(AGAIN) $(APART)
	$(BIN)/python -m pytest $(APART:%=--ignore %) || $(AGAIN) $(APART:%=--ignore %)

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports
	$(BIN)/python proto/generate.py --check

check: lint types contracts
	$(MAKE) test

# Of the router as it is meant to run on a busy machine: compiled, where that can be done.
bench: native
	$(BIN)/python -m tests.bench.run

soak: setup
	LLMGW_SOAK=1 $(BIN)/python -m pytest -m "promise or acceptance"

proto: setup
	$(BIN)/python proto/generate.py

snapshots: setup
	$(BIN)/python -m pytest tests/console --snapshot-update

reference: setup
	$(BIN)/python -m llmgw.web.openapi --write
	$(BIN)/python -m llmgw.cli.reference --write

# Ends with 1 when an engine whose flags are known here has a newer release on the configured package index.
followed: setup
	$(BIN)/python -m agent.provision.followed

clean:
	rm -rf $(VENV) $(dir $(NATIVE)) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
