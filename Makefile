# Every target is idempotent and re-uses what is there. `make help` lists them.
# Works with GNU make 3.81 (macOS) and needs nothing beyond Python 3.11+.

VENV := .venv
BIN := $(VENV)/bin
DATA_DIR ?= data
HOST ?= 127.0.0.1
PORT ?= 8080

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --------------------------------------------------------------------------------------------------------------- setup

.PHONY: setup
setup: $(VENV)/installed $(VENV)/console ## Create .venv from requirements.lock (PYTHON=python3.12 chooses the Python)

# Tests and demo start hundreds of processes: what they import is compiled once, whatever the environment says, and only that.
unexport PYTHONDONTWRITEBYTECODE

PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# A stamp is written last. An environment in which pip was interrupted may hold half a package that looks whole: `unfinished`
# then still stands in it, and it is made anew. Build backends come first and packages without wheels are built with those:
# nothing is installed whose hash is not in a lock. A pip comes with them: that of Python 3.11 takes twice as long for the rest.
$(VENV)/locked: requirements.lock deploy/locks/build.txt
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/create_venv.sh
	@touch $(VENV)/unfinished
	@$(PIP_INSTALL) --require-hashes --requirement deploy/locks/build.txt
	@$(PIP_INSTALL) --require-hashes --no-build-isolation --requirement requirements.lock
	@rm $(VENV)/unfinished
	@touch $@

$(VENV)/installed: $(VENV)/locked pyproject.toml
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

# One attempt for each change: without a registry at hand the service runs without the console. `make console` tries again.
CONSOLE_SOURCES := $(shell find console -name node_modules -prune -o -type f -not -name schema.d.ts -print) openapi/openapi.json
BUILD_CONSOLE := PYTHON=$(BIN)/python sh scripts/build_console.sh

$(VENV)/console: $(CONSOLE_SOURCES) scripts/build_console.sh deploy/console/node.txt
	@$(BUILD_CONSOLE) || { test $$? -eq 75 && echo "The console is not built: its packages cannot be fetched here. make console tries again."; }
	@touch $@

.PHONY: console
console: ## Build the browser console (Node from this machine or PyPI, packages from npm)
	@test -x $(BIN)/python || $(MAKE) --no-print-directory setup
	@$(BUILD_CONSOLE)
	@touch $(VENV)/console

# ---------------------------------------------------------------------------------------------------------------- use

.PHONY: demo
demo: setup ## 336,776 flights through the log into a Delta table, each exactly once
	@$(BIN)/python -m demo

# The service alone: an environment that has everything serves as well.
.PHONY: service
service:
	@test -f $(VENV)/installed || $(MAKE) --no-print-directory $(VENV)/service

$(VENV)/service: deploy/locks/run.txt deploy/locks/build.txt pyproject.toml
	@PYTHON="$(PYTHON)" VENV="$(VENV)" LOCK=deploy/locks/run.txt sh scripts/create_venv.sh
	@touch $(VENV)/unfinished
	@$(PIP_INSTALL) --require-hashes --requirement deploy/locks/build.txt
	@$(PIP_INSTALL) --require-hashes --requirement deploy/locks/run.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@rm $(VENV)/unfinished
	@touch $@

.PHONY: run
run: service ## The service in the foreground (DATA_DIR=data HOST=127.0.0.1 PORT=8080)
	@$(MAKE) --no-print-directory $(VENV)/console
	@echo "The console: http://$(HOST):$(PORT)/console/"
	$(BIN)/tidelog serve --data-dir $(DATA_DIR) --host $(HOST) --port $(PORT)

.PHONY: bench
bench: setup ## Measure against the yardsticks in the same run: a table, and JSON for programs
	@$(BIN)/python -m bench.warm $(BIN)/python -m bench
	@$(BIN)/python -m bench.warm $(BIN)/python -m bench.engine

.PHONY: bench-peers
bench-peers: setup ## Measure beside Durable Streams, s2-lite, Kafka's broker and Spark's Kafka source (Java, Maven, cargo, npm, network)
	@$(BIN)/python -m bench.warm $(BIN)/python -m bench.peers

MEASURE ?= single

.PHONY: flame
flame: setup ## Draw where the service's time goes during a measure (MEASURE=single); fetches py-spy
	@test -x build/flame/site/bin/py-spy || $(BIN)/python -m pip install --quiet --disable-pip-version-check --target build/flame/site py-spy==0.4.1
	@$(BIN)/python -m bench.flame $(MEASURE)

.PHONY: image
image: ## Build the container image tidelog:latest
	docker build --tag tidelog:latest .

# -------------------------------------------------------------------------------------------------------------- checks

.PHONY: test
test: lint types tests ## Everything CI checks: format, lint, types, imports, tests

.PHONY: lint
lint: setup ## Format, lint and import contracts, without changing a file
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

.PHONY: types
types: setup ## mypy --strict over everything
	$(BIN)/mypy

PYTEST_ARGS ?= -n 2
# pyproject.toml says where SlipCover has no wheel; there the tests run and nothing is counted
COUNTED = $$($(BIN)/python -c 'import slipcover' 2>/dev/null && echo -p tests.support.branches)

.PHONY: tests
tests: setup ## The tests alone, all branches demanded, on two cores (PYTEST_ARGS= runs them one by one)
	$(BIN)/pytest $(COUNTED) $(PYTEST_ARGS)

.PHONY: test-long
test-long: setup ## What takes minutes or a tool from elsewhere; names what it leaves out
	$(BIN)/pytest -m long --hypothesis-profile=long --timeout=3600 $(LONG_ARGS)

.PHONY: simulate
simulate: setup ## Whole lives of the engine on a disk that fails, from seeds (SEED=1 RUNS=1000)
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS))

.PHONY: interleavings
interleavings: setup ## Threads beside each other, interrupted where a seed says (OF=service SEED=1 RUNS=5000)
	@$(BIN)/python -m tests.interleavings$(if $(OF),.$(OF)) $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) \
		$(if $(WORKS),--works '$(WORKS)') $(if $(WITHOUT),--without $(WITHOUT)) $(if $(ATTEMPT),--attempt $(ATTEMPT))

.PHONY: mutants
mutants: setup ## Each sync, rename and lock left out or moved, or ANY=300 changed expressions: the tests must notice (ONLY=engine/log SEED=1; hours)
	@$(BIN)/python -m tests.mutants $(if $(ONLY),--only '$(ONLY)') $(if $(ANY),--any $(ANY) --seed $(or $(SEED),1) --jobs 2 --lives 200 --schedules 100)

.PHONY: damage
damage: setup ## Data directories with a file of each damaged at random, judged, from seeds (SEED=1 RUNS=1000)
	@$(BIN)/python -m tests.corruption $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS))

TARGET ?= validator
SECONDS ?= 60

.PHONY: fuzz
fuzz: setup ## Hostile bytes for a parser, led by what they reach (TARGET=validator SECONDS=60); fetches Atheris
	@test -d build/fuzz/site || $(BIN)/python -m pip install --quiet --disable-pip-version-check --target build/fuzz/site atheris==3.0.0
	@PYTHONPATH=build/fuzz/site $(BIN)/python -m tests.fuzz $(TARGET) --seconds $(SECONDS)

# -------------------------------------------------------------------------------------------------------------- release

RELEASE := build/release
RELEASE_TOOLS := $(RELEASE)/tools

# An environment of their own: what checks a release is no part of it.
$(RELEASE_TOOLS)/installed: deploy/release/tools.txt $(VENV)/locked
	@rm -rf $(RELEASE_TOOLS)
	@$(BIN)/python -m venv $(RELEASE_TOOLS)
	@$(RELEASE_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement deploy/release/tools.txt
	@touch $@

AUDIT_FAILED := audit: not passed. If a vulnerability is named above, upgrade that package (make lock UPGRADE=1). \
	If the advisories of PyPI gave no answer, run make audit where they can be reached; make sbom and make dist work without them.

.PHONY: audit
audit: $(RELEASE_TOOLS)/installed ## Fail on a known vulnerability in any lock, or on a package without an answer (network: the advisories of PyPI)
	@for lock in requirements.lock deploy/locks/*.txt; do \
		echo "$$lock" && $(RELEASE_TOOLS)/bin/pip-audit --strict --require-hashes --disable-pip --progress-spinner off --requirement $$lock \
			|| { echo "$(AUDIT_FAILED)" >&2; exit 1; }; \
	done

.PHONY: sbom
sbom: $(RELEASE_TOOLS)/installed ## Write what each image holds as a CycloneDX document (build/release/*.cdx.json)
	@for lock in service spark; do \
		$(RELEASE_TOOLS)/bin/python -W ignore::UserWarning -m cyclonedx_py requirements --output-reproducible --pyproject pyproject.toml \
			--output-file $(RELEASE)/$$lock.cdx.json deploy/locks/$$lock.txt || exit 1; \
	done

.PHONY: release
release: test audit sbom dist ## Everything that goes out, checked: tests, vulnerabilities, bills of materials, the wheels

.PHONY: dist
dist: setup ## Build both wheels, of the service and of the Spark source, into dist/
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist . ./distributions/pyspark-tidelog
	@ls dist/*.whl

# --------------------------------------------------------------------------------------------------------------- upkeep

.PHONY: format
format: setup ## Format the code and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: openapi
openapi: setup ## Regenerate openapi/openapi.json
	$(BIN)/tidelog openapi > openapi/openapi.json

.PHONY: screenshots
screenshots: setup ## Take the pictures of docs/console.md again: each page, light and dark (Chromium)
	@$(BIN)/python -m tests.console.screenshots

.PHONY: conformance
conformance: setup ## Regenerate docs/conformance.md from the rows and the tests' markers
	@$(BIN)/python -m tests.conformance.page

.PHONY: settings-page
settings-page: setup ## Regenerate docs/settings.md from the texts of the settings
	@$(BIN)/python -m tests.docs.settings_page

UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'
SPARK_PROJECT := distributions/pyspark-tidelog/pyproject.toml
UV_SUBSET := $(UV_COMPILE) --no-annotate --constraint requirements.lock --output-file

.PHONY: lock
lock: setup ## Resolve the locks anew from pyproject.toml (UPGRADE=1 takes the newest of everything)
	$(UV_COMPILE) $(if $(UPGRADE),--upgrade) --output-file requirements.lock pyproject.toml $(SPARK_PROJECT) --extra arrow --extra kafka --extra otel --extra delta --extra iceberg --extra java --group dev
	$(UV_SUBSET) deploy/locks/build.txt --group build
	$(UV_SUBSET) deploy/locks/run.txt pyproject.toml
	$(UV_SUBSET) deploy/locks/service.txt pyproject.toml --extra arrow --extra kafka
	$(UV_SUBSET) deploy/locks/spark.txt pyproject.toml $(SPARK_PROJECT) --extra delta --extra iceberg --extra java
	$(UV_COMPILE) --no-annotate $(if $(UPGRADE),--upgrade) --output-file deploy/release/tools.txt deploy/release/tools.in
	$(UV_COMPILE) --no-annotate $(if $(UPGRADE),--upgrade) --output-file deploy/console/node.txt deploy/console/node.in

.PHONY: hooks
hooks: setup ## Let git run the checks before each commit
	$(BIN)/pre-commit install

.PHONY: clean
clean: ## Remove caches, reports and builds; .venv and data stay
	rm -rf build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
