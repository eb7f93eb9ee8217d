# The verbs of a contributor: make lint test demo bench docs. Each makes what it needs first.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# Spark's workers take the first Python on PATH unless told; that one may lack pyarrow.
export PYSPARK_PYTHON        := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(abspath $(BIN)/python)

.PHONY: help lint test demo demo-data bench docs minio clean

help:
	@echo "make demo   a selective scan of 336,776 flights, from Python and from Spark (Java 17)"
	@echo "make demo-data  only the flights, into demo-data/"
	@echo "make test   the whole suite, against a real MinIO"
	@echo "make lint   ruff, mypy --strict, the import contract"
	@echo "make bench  accel and its peers over MinIO behind a slow network: latency, bytes, requests"
	@echo "make docs   the documentation site, into site/"

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What to run can be narrowed: make test ARGS="tests/unit/format -x"
ARGS ?=
# Two processes share the work: each test file starts its own servers.
test: minio
	$(BIN)/python -m pytest --numprocesses 2 $(ARGS)

demo: $(VENV)/.stamp-demo
	$(BIN)/python -m demo

# What the README and the documentation read; without Spark and Java.
demo-data: $(VENV)/.stamp-demo-data
	$(BIN)/python -m demo.flights

# A few minutes: make bench ARGS=--quick; what else there is: make bench ARGS=--help
bench: $(VENV)/.stamp-bench
	@$(BIN)/python -m tests.support.s3
	$(BIN)/python -m bench $(ARGS)

docs: $(VENV)/.stamp-dev
	$(BIN)/mkdocs build --strict

# MinIO from PATH or from the cache of tools, else built by Go into that cache. Without either the tests say
# so and take moto[server]; in CI they fail.
minio: $(VENV)/.stamp-dev
	@$(BIN)/python -m tests.support.s3 || test "$$CI" != true

clean:
	rm -rf $(VENV) site build dist demo-data bench-data .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Stamp files: an installation is done again when pyproject.toml has changed since.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "accel needs Python 3.11 or later: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "python3 -m venv failed: on Debian, apt install python3-venv" >&2; exit 1; }

$(VENV)/.stamp-%: pyproject.toml | $(VENV)/bin/python
	@echo "installing accel and its extra '$*' into $(VENV)"
	@$(PIP) install --quiet --editable '.[$*]'
	@touch $@
