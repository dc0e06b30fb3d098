# Needs python3 (3.11 or newer), make and the package index; everything else is installed in .venv.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help install run worker migrate test cover check format lock clean

help: ## Show what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tidings needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

install: $(STAMP) ## Install everything into .venv

run: $(STAMP) ## Start the whole service in one process: sandbox, SQLite, nothing else needed
	@$(BIN)/python -m app run

migrate: $(STAMP) ## Bring the database named by DATABASE_URL up to date
	@$(BIN)/python -m app migrate

test: $(STAMP) ## Run the whole suite, on real PostgreSQL, Redis and SMTP servers it boots itself
	$(BIN)/pytest

cover: $(STAMP) ## The same, with coverage
	$(BIN)/pytest --cov --cov-report=term

check: $(STAMP) ## Format, lint, types, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Put the code into its one form
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	--no-emit-index-url --no-emit-find-links --no-header pyproject.toml

lock: $(STAMP) ## Renew requirements.txt and requirements-dev.txt from pyproject.toml
	$(LOCK) -o requirements.txt
	$(LOCK) --extra dev -c requirements.txt -o requirements-dev.txt

clean: ## Remove what was installed and built; data/ stays
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .coverage .hypothesis
