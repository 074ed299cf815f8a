# Everything a person or a machine does with this repository, from a bare clone.
# Needed beforehand: make and Python >= 3.11; `make test` drives a chromium through the console. `make interop` also wants Java, Maven, Go and
# Node, `make bench` and `make sanitize` a C compiler. With one, and the headers of Python, the native loops are compiled and tested, too (docs/decisions/0022).

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Tests start hundreds of processes: without bytecode each would compile every source anew.
unexport PYTHONDONTWRITEBYTECODE

# The first Python that is new enough and can make virtual environments; `make PYTHON=/path/to/python …` overrides.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$python" && break; done)

VENV := .venv
BIN := $(VENV)/bin
# One stamp for one content of the files that say what to install (and one place: a virtual environment cannot move).
INSTALLED := $(VENV)/installed-$(shell { cat pyproject.toml constraints.txt; pwd; } | cksum | tr ' ' '-')
# And one for what is compiled: other C sources, or another compiler, take a second and not an installation.
STAMP := $(VENV)/compiled-$(shell { echo "$(INSTALLED) $$KOUROU_BUILD_NATIVE $$CC $$CFLAGS $$LDFLAGS"; command -v cc; \
	cat hatch_build.py native/*.[ch]; } | cksum | tr ' ' '-')
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

IMAGES ?= 30000
KILLS ?= 100
FLIPS ?= 3000
MEMBERS ?= 20
PAIRS ?= 40
FAILOVERS ?= 50
ELECTIONS ?= 5000
MINUTES ?= 10
SECONDS ?= 10
TARGETS ?=
HOURS ?=
SEEDS ?= 500
WORKERS ?= 3
ARGS ?=

.PHONY: help demo test lint format interop bench chaos sim fuzz sanitize soak docs constraints install clean

help: ## show this list
	@echo "Kourou: a message queue that speaks Apache RocketMQ. Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Options: PYTHON=python3.12 · WORKERS=, ARGS='-k name' (pytest) · IMAGES=, KILLS=, FLIPS=, MEMBERS=, PAIRS=, FAILOVERS=, ELECTIONS=, MINUTES= (chaos) · HOURS=, MINUTES= (soak)"

demo: $(STAMP) ## start a broker, send and receive with our client and a stock one, and tell the story; CONSOLE=1 leaves the console running
	@CONSOLE=$(CONSOLE) $(BIN)/python -m tools.demo

test: lint ## everything that must hold: style, types, imports, and all tests but those that need Java
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(STAMP) ## ruff, mypy --strict, import contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

format: $(STAMP) ## let ruff put the sources in order
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

interop: $(STAMP) ## against real Apache clients, brokers and name servers (Java, Maven, Go, Node)
	@missing=; for tool in java mvn go node npm; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	if [ -n "$$missing" ]; then \
		echo "make interop: NOT RUN, missing on PATH:$$missing (install a JDK 11+, Maven 3.8+, Go 1.19+ and Node 18+)" >&2; exit 1; fi
	@$(BIN)/python -m pytest tests/interop -m "" --numprocesses 2 --dist loadfile $(ARGS)

bench: $(STAMP) ## measure, and compare with an Apache broker where Java and Maven are
	@$(BIN)/python -m bench $(ARGS)

chaos: $(STAMP) ## IMAGES of power cuts, KILLS of a broker, FLIPS of bits, MEMBERS that come and go, FAILOVERS of masters, ELECTIONS simulated, a crowd of thousands, faults put in on purpose, MINUTES of soaking
	@IMAGES=$(IMAGES) KILLS=$(KILLS) FLIPS=$(FLIPS) ENDINGS=20 MEMBERS=$(MEMBERS) PAIRS=$(PAIRS) MINUTES=$(MINUTES) \
		FAILOVERS=$(FAILOVERS) ELECTIONS=$(ELECTIONS) ORDERS=long CROWD=1 \
		$(BIN)/python -m pytest tests/chaos tests/sim/test_replica_set.py tests/sim/test_every_order.py tests/spark/test_pipeline_kills.py tests/spark/test_sink_kills.py tests/spark/test_sink_failover.py tests/spark/test_standalone_cluster.py tests/soak -m "not interop" --timeout 0 -s $(ARGS)

sim: $(STAMP) ## real brokers and clients in a simulated world, SEEDS of them, or one again: SEED=k; MUTATIONS=1 tests the test
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.sim --seeds $(SEEDS) $(if $(SEED),--seed $(SEED)) $(if $(MUTATIONS),--mutations) $(ARGS)
	$(if $(SEED)$(MUTATIONS),,@$(BIN)/python -m tests.sim.elected_brokers --seeds $(SEEDS))
	$(if $(SEED),,@$(BIN)/python -m tests.sim.every_order $(if $(MUTATIONS),--mutations,--long))
	$(if $(SEED),,@$(BIN)/python -m tests.sim.replica_set --seeds $(if $(MUTATIONS),500,$(ELECTIONS)) $(if $(MUTATIONS),--mutations))

fuzz: $(STAMP) ## look for inputs that break a promise: SECONDS of coverage-guided fuzzing of each of TARGETS (every parser and server), then every property test with 2,000 new examples
	@status=0; $(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(TARGETS) || status=$$?; \
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile explore --numprocesses $(WORKERS) --timeout 0 $(ARGS) || status=$$?; \
	exit $$status

sanitize: $(STAMP) ## the native loops compiled so that a wrong access ends the test (gcc), under the tests of all that uses them
	@$(BIN)/python -m tools.sanitize $(ARGS)

soak: $(STAMP) ## send and receive for HOURS, or MINUTES: memory, descriptors and tasks must not grow
	@HOURS=$(HOURS) MINUTES=$(MINUTES) $(BIN)/python -m pytest tests/soak --timeout 0 -s $(ARGS)

docs: $(STAMP) ## write the pages made from the sources, check all links and run every command in them
	@$(BIN)/python -m tools.api_reference
	@$(BIN)/python -m tools.command_line_reference
	@$(BIN)/python -m pytest tests/docs $(ARGS)

constraints: ## choose anew the exact versions in constraints.txt
	@PYTHON="$(PYTHON)" tools/choose-constraints

install: $(STAMP) ## only make .venv, with everything in it

$(STAMP): $(INSTALLED)
	@$(BIN)/python hatch_build.py
	@rm -f $(VENV)/compiled-* && touch $@

$(INSTALLED): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
		echo "make: found no Python >= 3.11 that can make virtual environments (tried python3, python3.13, python3.12," >&2; \
		echo "      python3.11). Install one (Debian and Ubuntu: also the python3-venv package) or name it: make PYTHON=…" >&2; \
		exit 1; fi
	@"$(PYTHON)" -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"make: $(PYTHON) is Python {v[0]}.{v[1]}; 3.11 or later is needed")'
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "making $(VENV) with $(PYTHON)"; rm -rf $(VENV); "$(PYTHON)" -m venv $(VENV); }
	@echo "installing the pinned tools and kourou into $(VENV)"
	@# What is built here, we and pyspark, is built with what is pinned; a bare environment's setuptools makes no wheels.
	@$(PIP) install --upgrade -c constraints.txt hatchling editables setuptools
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[server,console,spark,iceberg,dev]'
	@rm -f $(VENV)/installed-* && touch $@

clean: ## remove everything that was built, .venv included
	rm -rf $(VENV) src/kourou/native/*.so build dist kourou-data bench/build .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
