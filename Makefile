# `make` lists the targets. Everything sets itself up: Python >= 3.11 is all that must be there (and Java >= 17 for Spark).
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
# uv where it is installed; else one of our own, bootstrapped by pip into .uv/
UV := $(shell command -v uv 2>/dev/null || echo .uv/bin/uv)
RUN := $(UV) run --frozen --quiet

.PHONY: help setup demo demo-chaos tour test test-fast test-spark campaigns soak lint format bench clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

.uv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit("Fenceline needs Python 3.11 or newer, this is " + sys.version) if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv .uv || { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	@.uv/bin/pip install --quiet --disable-pip-version-check uv

# the real work of `setup`: redone only when what is installed could have changed
.venv/.ready: pyproject.toml uv.lock $(filter .uv/%,$(UV))
	@$(UV) sync --frozen --quiet
	@if command -v java >/dev/null 2>&1; then $(RUN) fenceline warm --quiet || echo "note: Spark will start more slowly"; \
	else echo "note: no Java found. Spark steps need Java 17 or newer: apt-get install openjdk-17-jre-headless, or brew install temurin"; fi
	@touch $@

setup: .venv/.ready ## Create .venv with everything pinned in uv.lock

demo: setup ## A pipeline of a million events on Spark, from raw to a report, in demo-output/
	@PYTHONPATH=examples $(RUN) python examples/listening/demo.py

demo-chaos: setup ## The same pipeline while one worker is killed and another sleeps through its retry
	@PYTHONPATH=examples $(RUN) python examples/listening/chaos.py

tour: setup ## The repository without Spark: branches, a conflict, a writer killed and recovered
	@$(RUN) python examples/tour.py

test: setup ## All tests, with coverage
	$(RUN) pytest -n 2 --no-loadscope-reorder --durations 15 --cov --cov-report= --cov-fail-under=88
	$(RUN) coverage report | tail -n 25

test-fast: setup ## The inner loop: no slow tests, no servers, no Spark, no model, no coverage
	$(RUN) pytest -n 2 --no-loadscope-reorder -m "not slow" -x \
		$(addprefix --ignore tests/,spark conductor s3 lakefs model typing)

test-spark: setup ## Everything that starts Spark in its long form: all tests on a cluster, kill -9 at every effect
	FENCELINE_CLUSTER=full FENCELINE_KILLS=full $(RUN) pytest tests/spark tests/e2e/test_spark_attempts.py -v

campaigns: setup ## The long forms of the rest: kills, runners, graphs, stores, the model (hours)
	FENCELINE_RUNNER=full FENCELINE_KILLS=full FENCELINE_MODEL=full FENCELINE_ENGINES=full FENCELINE_LAKEFS=full \
		$(RUN) pytest tests/protocol tests/model tests/unit/graph tests/lakefs tests/s3 tests/e2e -v

soak: setup ## The long form of the process-killing campaign (20 s a round; SECONDS_EACH=n for longer)
	FENCELINE_SOAK_SECONDS=$(or $(SECONDS_EACH),20) $(RUN) pytest tests/protocol/test_soak.py -v

lint: setup ## ruff, mypy --strict, import contracts
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy
	$(RUN) lint-imports

format: setup ## Let ruff format the code
	$(RUN) ruff format
	$(RUN) ruff check --fix

bench: setup ## Ratios measured side by side; also written to bench/results/
	$(RUN) python bench/repository.py --json bench/results/repository.json
	$(RUN) python bench/attempts.py --json bench/results/attempts.json
	$(RUN) python bench/spark.py --json bench/results/spark.json
	$(RUN) python bench/graph.py --json bench/results/graph.json
	$(RUN) python bench/remote.py --json bench/results/remote.json

clean: ## Remove everything that was set up or built
	rm -rf demo-output .venv .uv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* htmlcov dist build bench/results
