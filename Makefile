# Every target works on a fresh clone: what a target needs is installed first, once.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

BIN := .venv/bin
PACKAGING := pyproject.toml setup.py constraints.txt
RUN_FLAGS ?=
TEST_FLAGS ?=
BENCH_FLAGS ?=

.PHONY: help run observe test check static proto bench mutations venv

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 10

run: .venv/server.stamp  ## a daemon and several scheduler processes on one pool, every byte checked
	$(BIN)/radixd replay $(RUN_FLAGS)

observe: .venv/server.stamp  ## a daemon under replay, its status page, and a Prometheus beside it, until ^C
	$(BIN)/python scripts/observe.py

test: .venv/dev.stamp  ## the tests
	$(BIN)/pytest $(or $(TEST_FLAGS),--cov --cov-report=term)

check: static test  ## all that CI runs

static: .venv/dev.stamp  ## lint, types, import rules, fresh stubs, a wheel that imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	scripts/check_proto.sh
	$(BIN)/python scripts/check_wheel.py

proto:  ## generate the Python stubs from proto/
	scripts/gen_proto.sh

bench: .venv/dev.stamp  ## the benchmarks, as ratios against references measured in the same run
	$(BIN)/python -m bench $(BENCH_FLAGS)

mutations: .venv/dev.stamp  ## planted faults, each of which a test must notice
	$(BIN)/python scripts/mutations.py

venv: .venv/dev.stamp  ## the development environment alone

.venv/server.stamp: $(PACKAGING)
	scripts/venv.sh .venv -c constraints.txt -e '.[server,attach]'
	@touch $@

.venv/dev.stamp: $(PACKAGING)
	scripts/venv.sh .venv -c constraints.txt -e '.[server,attach,dev]'
	@touch $@ .venv/server.stamp
