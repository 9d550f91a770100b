# Every command of the project. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

PYTHON_CODE := $(wildcard src tests bench examples)
TYPED_CODE := $(wildcard src tests bench)
BENCHES := $(filter-out _%,$(basename $(notdir $(wildcard bench/*.py))))

COUNT ?= 100000
SEED ?= 1
MINUTES ?= 60

# Tests wait more than they compute. A process of the tests takes up to 2 GiB, Spark included.
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
JOBS ?= $(shell echo $$(( $(CORES) > 2 ? 8 : $(CORES) * 3 )))
PYTEST := $(BIN)/python -m pytest --dist loadfile --durations 10
CLASS_ARCHIVE := $(VENV)/spark.jsa

.PHONY: help setup demo test unit check bench chaos soak fuzz format clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## install everything that is missing: .venv, pinned dependencies, Java 17+
	@bash scripts/setup.sh java

$(INSTALLED): pyproject.toml constraints.txt $(wildcard setup.py)
	@bash scripts/setup.sh python
	@touch $@

demo: setup ## show Tidegate at work
	$(BIN)/tidegate demo

test: setup $(CLASS_ARCHIVE) ## run every test, real Spark and PostgreSQL included; JOBS processes at once
	$(PYTEST) -n $(JOBS) --doctest-modules src/tidegate tests

unit: $(INSTALLED) ## run the tests that need neither Spark nor PostgreSQL, in seconds
	JAVA_HOME=/unit-tests-start-no-java $(PYTEST) -n $(CORES) --doctest-modules src/tidegate tests/unit tests/plans

$(CLASS_ARCHIVE): $(INSTALLED) tests/jvm.py
	$(BIN)/python -m tests.jvm

check: $(INSTALLED) ## check format, lint, types and import layers
	$(BIN)/ruff format --check $(PYTHON_CODE)
	$(BIN)/ruff check $(PYTHON_CODE)
	$(BIN)/mypy $(TYPED_CODE)
	$(BIN)/lint-imports

bench: setup ## run every benchmark in bench/
	@for name in $(BENCHES); do echo "== $$name"; $(BIN)/python -m bench.$$name; done

chaos: setup ## kill the coffee pipeline at every step and compare its results
	$(BIN)/tidegate chaos coffee

soak: setup ## repeat chaos of runs and of whole deployments for MINUTES, with seeds from SEED on
	@seed=$(SEED); while [ $$SECONDS -lt $$(( $(MINUTES) * 60 )) ]; do \
	    for what in --quick --processes; do \
	        echo "== tidegate chaos coffee $$what --seed $$seed"; \
	        $(BIN)/tidegate chaos coffee $$what --seed $$seed; \
	    done; seed=$$((seed + 1)); \
	done

fuzz: setup ## deliver COUNT damaged and random chunks to a server; SEED decides which
	$(BIN)/python -m tests.fuzz.chunks --count $(COUNT) --seed $(SEED)

format: $(INSTALLED) ## format the code and fix what lint can fix
	$(BIN)/ruff check --fix-only $(PYTHON_CODE)
	$(BIN)/ruff format $(PYTHON_CODE)

clean: ## remove .venv, caches and build results
	rm -rf $(VENV) build dist src/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf .import_linter_cache spark-warehouse metastore_db derby.log artifacts
	find src examples tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
