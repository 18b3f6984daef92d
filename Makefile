# Everything a contributor does, by name. `make` alone lists it.

PYTHON ?= python3
ARGS   ?=

VENV    := .venv
BIN     := $(VENV)/bin
HARNESS := tests/conformance
BROWSER := tests/browser
# Spark comes as source, and old versions of pip lament how it is built.
PIP     := $(BIN)/python -W ignore:DEPRECATION -m pip install --quiet --no-input --disable-pip-version-check

# Installs are recorded by a stamp, so that repeating them costs nothing until an input changes.
RUN_STAMP   := $(VENV)/.installed-run
SPARK_STAMP := $(VENV)/.installed-spark
DEV_STAMP   := $(VENV)/.installed-dev
NODE_STAMP  := $(HARNESS)/node_modules/.package-lock.json
PATRONI_STAMP := build/patroni/.installed
BROWSER_STAMP := $(BROWSER)/node_modules/.package-lock.json

# Tests start Python hundreds of times. Where nothing may be written, each compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install install-spark install-dev run serve test explore coverage check console-types fmt generate tour conformance \
	sim attack cluster nemesis bench docs package wheels image formula lock clean need-python need-node

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(RUN_STAMP) ## Install what the server needs into .venv

install-spark: $(SPARK_STAMP) ## Install what the pipelines need too

install-dev: $(DEV_STAMP) ## Install the test and lint tools too

# Where Spark cannot be installed there is still a server.
run: $(RUN_STAMP) ## Install, then serve ./data, with a demo and tables in ./lake (ARGS="--port 8080")
	@$(MAKE) --no-print-directory install-spark || echo "headwater: Spark could not be installed (see \
	above); the server starts without pipelines, and the next make run tries again" >&2
	@exec $(BIN)/headwater up --data ./data --lake ./lake --demo $(ARGS)

serve: $(RUN_STAMP) ## Install, then serve ./data and nothing else (ARGS="--port 8080")
	@exec $(BIN)/headwater serve --data ./data $(ARGS)

# How tests share the machine is said in tests/support/turns.py.
test: need-node $(DEV_STAMP) $(NODE_STAMP) $(BROWSER_STAMP) ## Run every test, on all cores (ARGS="-k name")
	$(BIN)/python -m pytest --numprocesses logical --durations 15 $(ARGS)

# What is left to chance, and how to repeat it, is said in tests/support/seeds.py.
explore: SEED := $(or $(SEED),$(shell date +%s))
explore: need-node $(DEV_STAMP) $(NODE_STAMP) $(BROWSER_STAMP) ## Run tests with new random choices (SEED=7 repeats them)
	EXPLORE_SEED=$(SEED) $(BIN)/python -m pytest --numprocesses logical --hypothesis-seed $(SEED) $(ARGS)

# Servers that tests start are measured too. Slower than `make test`, and never a reason to fail.
coverage: need-node $(DEV_STAMP) $(NODE_STAMP) $(BROWSER_STAMP) ## Run every test and report what they cover
	$(BIN)/python -m pytest --numprocesses logical --cov --cov-report term:skip-covered \
		--cov-report html $(ARGS)
	@echo "headwater: line by line in build/coverage/index.html"

check: $(DEV_STAMP) ## Lint, formatting, types (Python and the console), import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory console-types; \
		else echo "headwater: no node here, so the types of the console are not checked"; fi

console-types: $(BROWSER_STAMP)
	$(BROWSER)/node_modules/.bin/tsc --project $(BROWSER)/console.tsconfig.json

fmt: $(DEV_STAMP) ## Format the code and fix what the linter can fix
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

generate: $(DEV_STAMP) ## Write what is generated from the code: the blocking client, tables in the docs
	$(BIN)/python -m scripts.generate $(ARGS)

tour: need-node $(DEV_STAMP) $(BROWSER_STAMP) ## Take the screenshots of the console for the docs, while its tests run
	HEADWATER_TOUR=$(CURDIR)/docs/images/console $(BIN)/python -m pytest $(BROWSER)/test_console_pages.py \
		$(BROWSER)/test_console_journeys.py $(ARGS)

conformance: need-node $(DEV_STAMP) $(NODE_STAMP) ## Run the public protocol suite against every engine
	$(BIN)/python -m pytest -m conformance $(HARNESS) $(ARGS)

sim: $(DEV_STAMP) ## Run the seeded simulation (SEED=7)
	$(BIN)/python -m tests.simulation $(or $(SEED),1) $(ARGS)

attack: $(DEV_STAMP) ## Attack a server in every known way at once (MINUTES=10)
	$(BIN)/python -m tests.attack $(or $(MINUTES),10) $(ARGS)

cluster: $(DEV_STAMP) ## Run three PostgreSQL servers, three nodes and some load, and break parts of them
	@exec $(BIN)/python -m tests.cluster.demo $(ARGS)

nemesis: $(DEV_STAMP) $(if $(PATRONI),$(PATRONI_STAMP)) ## Kill, pause and cut off parts of a cluster (SEED=7 MINUTES=10 PATRONI=1)
	$(BIN)/python -m tests.cluster $(or $(SEED),1) $(or $(MINUTES),10) $(if $(PATRONI),--patroni)

bench: $(DEV_STAMP) ## Run the benchmarks (ARGS="--help")
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(DEV_STAMP) ## Build the documentation as a site, with search, into build/docs
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet docs build/docs
	@echo "headwater: open build/docs/index.html"

package: $(DEV_STAMP) ## Build the wheel and the source distribution into dist/
	$(BIN)/python -P -m build --no-isolation

# What the image of deploy/Dockerfile runs on.
IMAGE_PYTHON = 3.13
IMAGE_PLATFORM ?= manylinux_2_28_$(shell uname -m)

wheels: package ## Collect the wheel and everything it needs in dist/wheels, for an image
	rm -rf dist/wheels && mkdir -p dist/wheels && cp dist/*.whl dist/wheels
	$(BIN)/python -m pip download --quiet --no-deps --require-hashes --only-binary :all: \
		--python-version $(IMAGE_PYTHON) --platform $(IMAGE_PLATFORM) --platform manylinux_2_17_$(shell uname -m) \
		--platform manylinux2014_$(shell uname -m) --dest dist/wheels --requirement requirements/run.txt

image: wheels ## Build the container image from the wheels, without a network
	docker build --network none --file deploy/Dockerfile --tag headwater:$$($(BIN)/headwater --version | cut -d' ' -f2) .

formula: package ## Write a Homebrew formula for the source distribution (URL= where it will be)
	$(BIN)/python -m scripts.homebrew_formula --url "$(URL)" dist/*.tar.gz > dist/headwater.rb

clean: ## Remove installs and caches; ./data and ./lake are kept
	rm -rf $(VENV) $(HARNESS)/node_modules $(BROWSER)/node_modules build dist
	rm -rf .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- Locking -------------------------------------------------------------------------------------
# The lock files hold versions and hashes for every platform and no addresses, so that they work
# with any package index. Each is constrained by the one before: tests run against what is shipped.

UV := build/lock/bin/uv
COMPILE = $(UV) pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes \
	--no-config --no-header --no-annotate --no-strip-extras pyproject.toml requirements/build.in
LOCK_NOTE := \# Locked versions and hashes. Refresh with `make lock`; do not edit by hand.

# What is locked stays as it is, unless a dependency forbids it or `make lock UPGRADE=--upgrade` asks for the newest.
lock: need-python need-node ## Update requirements/*.txt and the npm locks (UPGRADE=--upgrade)
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --no-input --upgrade uv
	cp requirements/run.txt requirements/spark.txt requirements/dev.txt requirements/patroni.txt build/lock/
	$(COMPILE) --output-file build/lock/run.txt --extra server
	$(COMPILE) --output-file build/lock/spark.txt --extra spark --constraint build/lock/run.txt
	$(COMPILE) --output-file build/lock/dev.txt --extra dev --constraint build/lock/spark.txt
	$(UV) pip compile --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-config \
		--no-header --no-annotate --no-strip-extras requirements/patroni.in --constraint build/lock/dev.txt \
		--output-file build/lock/patroni.txt
	for name in run spark dev patroni; do \
		{ echo '$(LOCK_NOTE)'; cat build/lock/$$name.txt; } > requirements/$$name.txt; done
	for directory in $(HARNESS) $(BROWSER); do \
		(cd $$directory && npm install --package-lock-only --ignore-scripts) || exit 1; done
	@! grep -nE '"resolved"' $(HARNESS)/package-lock.json $(BROWSER)/package-lock.json \
		|| { echo "headwater: an npm lock holds addresses; see $(HARNESS)/.npmrc" >&2; exit 1; }

# --- Installs ------------------------------------------------------------------------------------

$(BIN)/python: | need-python
	$(PYTHON) -m venv $(VENV)

$(RUN_STAMP): requirements/run.txt pyproject.toml | $(BIN)/python
	$(PIP) --require-hashes --requirement requirements/run.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(SPARK_STAMP): requirements/spark.txt $(RUN_STAMP)
	@echo "Installing Spark: 500 MB, which takes a minute or two the first time"
	$(PIP) --require-hashes --requirement requirements/spark.txt
	@touch $@

$(DEV_STAMP): requirements/dev.txt $(RUN_STAMP)
	$(PIP) --require-hashes --requirement requirements/dev.txt
	@touch $@

# Patroni and etcd have an environment of their own: only `make nemesis PATRONI=1` needs them.
$(PATRONI_STAMP): requirements/patroni.txt | need-python
	$(PYTHON) -m venv build/patroni
	build/patroni/bin/python -m pip install --quiet --no-input --disable-pip-version-check \
		--require-hashes --requirement $<
	@touch $@

# npm writes this file last, so it doubles as the stamp.
%/node_modules/.package-lock.json: %/package.json %/package-lock.json | need-node
	cd $* && npm ci --no-audit --no-fund
	@touch $@

need-python:
	@command -v $(PYTHON) >/dev/null \
		|| { echo "headwater: $(PYTHON) not found; install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "headwater: $$($(PYTHON) -V) is too old; install Python 3.11 or newer and run make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "headwater: $(PYTHON) cannot make virtual environments; install python3-venv" >&2; exit 1; }

need-node:
	@command -v node >/dev/null \
		|| { echo "headwater: node not found; install Node.js 20.19 or newer (only tests need it)" >&2; exit 1; }
	@node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' \
		|| { echo "headwater: node $$(node -v) is too old; install Node.js 20.19 or newer" >&2; exit 1; }
	@command -v npm >/dev/null \
		|| { echo "headwater: npm not found; install npm (it comes with Node.js)" >&2; exit 1; }
