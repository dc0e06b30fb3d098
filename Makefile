# Needs python3 (3.11 or newer), make and the package index; everything else is installed in .venv.

PYTHON ?= python3
BIN := .venv/bin
RUNTIME := .venv/.runtime
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*## .*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

PIP := $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes

$(RUNTIME): requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tidings needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	@echo "Installing into .venv; this takes a minute, once."
	@$(PYTHON) -m venv .venv
	@$(PIP) -r requirements.txt
	@touch $@

$(STAMP): $(RUNTIME) requirements-dev.txt
	@echo "Installing what the tests and checks need; this takes a minute, once."
	@$(PIP) -r requirements-dev.txt
	@touch $@

install: $(STAMP) ## Install everything into .venv

run: $(RUNTIME) ## Start the whole service in one process: sandbox, SQLite, nothing else needed
	@$(BIN)/python -m app run

migrate: $(RUNTIME) ## Bring the database named by DATABASE_URL up to date
	@$(BIN)/python -m app migrate

test: $(STAMP) ## Run the whole suite, on real PostgreSQL, Redis and SMTP servers that it boots itself
	$(BIN)/pytest -n auto --dist loadfile

LAST_FAILED := $(BIN)/pytest --last-failed --last-failed-no-failures none

again: $(STAMP) ## Run failed tests again, alone; at most three, and none of tests/chaos
	@failed=$$($(LAST_FAILED) --collect-only -qq | grep ': [0-9]'); echo "$$failed"; \
		if echo "$$failed" | grep -q '^tests/chaos/'; then \
			echo "A message that was lost once is lost: tests/chaos is not run again."; exit 1; fi; \
		echo "$$failed" | awk -F': ' '{ n += $$2 } END { print n " tests failed"; exit n < 1 || n > 3 }'
	$(LAST_FAILED)

cover: $(STAMP) ## The same, with coverage
	$(BIN)/pytest -n auto --dist loadfile --cov --cov-report=term

bench: $(STAMP) ## All benchmarks, one table and a plot of each curve (two hours; ARGS=--quick: minutes)
	$(BIN)/python -m tests.bench $(ARGS)

bench-scale: $(STAMP) ## Compare what is asked at 5,000 and 5,000,000 runs, of 1,000 and 1,000,000 contacts (half an hour)
	$(BIN)/python -m tests.bench.scale

bench-import: $(STAMP) ## Import a file of 1,000,000 contacts: rows a second, peak memory
	$(BIN)/python -m tests.bench.imports

fuzz-api: $(STAMP) ## Fuzz the API: 200 examples an operation, two roles (a quarter of an hour or more)
	$(BIN)/python -m tests.fuzz.api

bench-intake: $(STAMP) ## Compare the intake with a route that does nothing, on the same server (ten minutes)
	$(BIN)/python -m tests.bench.intake

bench-runs: $(STAMP) ## Compare one worker's runs with arq's own jobs, and time the whole way (ten minutes)
	$(BIN)/python -m tests.bench.runs

bench-start: $(STAMP) ## Time the way from the start command to the first 202, and weigh the idle process
	$(BIN)/python -m tests.bench.start

bench-fair: $(STAMP) ## Have one workspace wait behind 100,000 due runs of another (two minutes)
	$(BIN)/python -m tests.bench.fair

chaos-intake: $(STAMP) ## Cut 200 COMMITs before and 200 after they arrive: every answer must be true
	$(BIN)/python -m tests.chaos.intake

chaos: $(STAMP) ## Break everything 560 times under 66,000 events, and ask the oracle (forty minutes)
	$(BIN)/python -m tests.chaos.campaign $(ARGS)

chaos-rival: $(STAMP) ## Strike Tidings and a plain arq pipeline alike, and compare (three to eight minutes)
	$(BIN)/python -m tests.chaos.rivals.contest

chaos-mutants: $(STAMP) ## Make sixteen mistakes in copies of the sources: each must be caught, and none where there is none
	$(BIN)/python -m tests.chaos.mutants

FOR ?= 300
fuzz-intake: $(STAMP) ## Fuzz the intake of a real server, for five minutes or FOR=seconds
	$(BIN)/python -m tests.fuzz.intake --seconds $(FOR)

fuzz-programs: $(STAMP) ## Run random programs, simulated and for real, 50 times as many as the suite (minutes)
	EXAMPLES=$${EXAMPLES:-50} $(BIN)/pytest -n auto --timeout 0 tests/test_random_programs.py

chaos-optout: $(STAMP) ## Answer 1,000 opt-outs while mail is under way, and look for what comes after
	$(BIN)/python -m tests.chaos.optout

chaos-delivery: $(STAMP) ## Cut connections to a mail server while 5,000 messages go out: every record must be true
	$(BIN)/python -m tests.chaos.delivery

chaos-throttle: $(STAMP) ## Have a mail server say 454 and an API 429, each for two minutes: no message may fail
	$(BIN)/python -m tests.chaos.throttling

bench-sends: $(STAMP) ## Messages a second to an SMTP receiver by one worker process, and how many connections
	$(BIN)/python -m tests.bench.sends

check: $(STAMP) ## Format, lint, types, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Format the code
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	--no-emit-index-url --no-emit-find-links --no-header pyproject.toml

lock: $(STAMP) ## Renew requirements.txt and requirements-dev.txt from pyproject.toml
	$(LOCK) -o requirements.txt
	$(LOCK) --extra dev -c requirements.txt -o requirements-dev.txt

clean: ## Remove what was installed and built, but not data/
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .coverage .hypothesis
