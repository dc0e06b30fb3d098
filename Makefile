# Needs python3 (3.11 or newer), make and the package index; everything else is installed in .venv.
# The console also needs npm's registry: without it, the service starts without its console.

PYTHON ?= python3
BIN := .venv/bin
RUNTIME := .venv/.runtime
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

PIP := $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes

$(RUNTIME): requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tidings needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12 …")'
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
	@$(BIN)/python console/build.py --if-stale
	@$(BIN)/python -m app run

console: $(RUNTIME) ## Check, test and build the web console; needs Node.js or the package index, and npm's registry
	@$(BIN)/python console/build.py

migrate: $(RUNTIME) ## Bring the database named by DATABASE_URL up to date
	@$(BIN)/python -m app migrate

clients: $(STAMP) ## Build the clients for Python and TypeScript into clients/dist; needs npm's registry
	@$(BIN)/python -m clients.build

# The browser's tests want the machine to themselves, and the clients' want clients/dist and npm's registry: `.ci/run`
# runs them by themselves.
ELSEWHERE := --ignore=tests/browser --ignore=tests/clients

test: $(STAMP) ## Run the tests, on real PostgreSQL, Redis and SMTP servers that they boot themselves (ARGS=--cov)
	$(BIN)/pytest -n auto --dist loadfile $(ELSEWHERE) -m "not drill and not alone" $(ARGS)

drills: $(STAMP) ## Run the other tests: the service as processes, killed and attacked; then what would race, one by one
	$(BIN)/pytest -n 3 --dist loadfile $(ELSEWHERE) -m drill $(ARGS)
	$(BIN)/pytest $(ELSEWHERE) -m alone $(ARGS)

check: $(STAMP) ## Format, lint, types, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Format the code
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .
	@[ ! -d console/node_modules ] || $(BIN)/python console/build.py --format

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras --upgrade \
	--no-emit-index-url --no-emit-find-links --no-header pyproject.toml

lock: $(STAMP) ## Renew requirements.txt and requirements-dev.txt from pyproject.toml
	$(LOCK) -o requirements.txt
	$(LOCK) --extra dev --extra mcp -c requirements.txt -o requirements-dev.txt

clean: ## Remove what was installed and built, but not data/
	rm -rf .venv console/node_modules app/web/dist clients/dist clients/typescript/node_modules .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .coverage .hypothesis
