# The verbs of a contributor: make lint test test-lowest test-spark35 demo bench docs. Each makes what it needs first.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# Spark's workers take the first Python on PATH unless told; that one may lack pyarrow.
export PYSPARK_PYTHON        := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(abspath $(BIN)/python)

.PHONY: help lint dist test test-lowest test-spark35 test-spark40 test-spark42 tables iceberg-tables demo demo-data bench docs minio clean

help:
	@echo "make demo   a selective scan of 336,776 flights, from Python and from Spark (Java 17)"
	@echo "make demo-data  only the flights, into demo-data/"
	@echo "make test   the whole suite, against a real MinIO"
	@echo "make test-lowest  a part of the suite, with the oldest versions of what accel needs"
	@echo "make tables  the Delta tables of the tests anew, by Spark 4.2 (Java 17, Maven)"
	@echo "make test-spark35, test-spark40, test-spark42  what every Spark has, with Spark 3.5, 4.0 or 4.2"
	@echo "make lint   ruff, mypy --strict, the import contract"
	@echo "make dist   the sdist and the wheel, into dist/, checked and installed as a user would"
	@echo "make bench  accel and its peers over MinIO behind a slow network: latency, bytes, requests"
	@echo "make docs   the documentation site, into site/"

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The wheel is made of the sdist, and installed with nothing but what it needs.
DIST_VENV := $(VENV)-dist
dist: $(VENV)/.stamp-dist
	rm -rf dist $(DIST_VENV)
	$(BIN)/python -m build --installer uv --outdir dist .
	$(BIN)/twine check --strict dist/*
	$(BIN)/uv venv --quiet --python $(BIN)/python $(DIST_VENV)
	$(BIN)/uv pip install --quiet --python $(DIST_VENV)/bin/python dist/*.whl
	cd dist && PYTHONPATH= ../$(DIST_VENV)/bin/python -I ../tests/support/installed.py
	rm -rf $(DIST_VENV)

# What to run can be narrowed: make test ARGS="tests/unit/format -x"
ARGS ?=
# Three processes share the work, as much of it is waiting; each takes whole files, which start their own servers and sessions.
test: minio
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder $(ARGS)

# A part of the suite of some four minutes, with the oldest versions that pyproject.toml allows of what accel itself needs
# (pyarrow 19 among them) and the newest tools of the tests: LOWEST="tests/unit/store" runs another part. uv resolves.
LOWEST_VENV := $(VENV)-lowest
LOWEST ?= tests/integration/test_smoke.py tests/integration/test_ways_in.py tests/unit/decode tests/unit/format \
	tests/unit/test_arrow_features.py tests/unit/test_arrays.py tests/oracle/test_rowwise.py tests/oracle/test_scan.py \
	tests/corrupt/test_page_changes.py tests/corrupt/test_schema_damage.py tests/corrupt/test_snappy_damage.py \
	tests/unit/store/test_usual_names.py tests/unit/cache/test_result_tier.py
test-lowest: $(LOWEST_VENV)/.stamp
	CI= PYSPARK_PYTHON= $(LOWEST_VENV)/bin/python -m pytest --numprocesses 2 -r fE $(LOWEST)

$(LOWEST_VENV)/.stamp: pyproject.toml | $(BIN)/uv
	@echo "installing the oldest versions of what accel needs into $(LOWEST_VENV)"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST_VENV)
	@$(BIN)/uv pip compile --quiet --resolution lowest-direct --python $(LOWEST_VENV)/bin/python \
		--extra postgres --extra redis --extra sketch --only-binary :all: --no-annotate --no-header \
		pyproject.toml --output-file $(LOWEST_VENV)/lowest.txt
	@$(BIN)/uv pip install --quiet --python $(LOWEST_VENV)/bin/python \
		--constraint $(LOWEST_VENV)/lowest.txt --editable '.[test]'
	@touch $@

# The Delta tables of the tests, anew, by Spark 4.2 and Delta's own library, in an environment of their own (Java 17, Maven;
# some ten minutes).
TABLES_VENV := $(VENV)-tables
tables:
	$(PYTHON) -m venv $(TABLES_VENV)
	$(TABLES_VENV)/bin/python -m pip install --quiet "pyspark==4.2.1" "pyarrow>=20" "pandas>=2.2"
	mvn --quiet --file tests/support/java/delta.pom.xml dependency:copy-dependencies \
		-DoutputDirectory=$(abspath $(TABLES_VENV))/jars
	PYSPARK_PYTHON=$(abspath $(TABLES_VENV))/bin/python $(TABLES_VENV)/bin/python tests/tables/make_delta_tables.py \
		$(TABLES_VENV)/jars

# What every Spark has, with an older one: some 40 seconds, and as many for the installation, where nothing of it is cached. CI
# runs the three side by side.
SPARK_OF_35 := 3.5.8
SPARK_OF_40 := 4.0.1
SPARK_OF_42 := 4.2.1
test-spark35 test-spark40 test-spark42: test-spark%: $(VENV)-spark%/.stamp
	CI= PYSPARK_PYTHON=$(abspath $(VENV)-spark$*)/bin/python PYSPARK_DRIVER_PYTHON=$(abspath $(VENV)-spark$*)/bin/python \
		$(VENV)-spark$*/bin/python -m pytest --timeout 600 -r fE -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning \
		$(or $(ARGS),tests/spark/test_any_spark.py)

$(VENV)-spark%/.stamp: pyproject.toml | $(BIN)/uv
	@echo "installing Spark $(SPARK_OF_$*) and what the tests need into $(VENV)-spark$*"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)-spark$*
	@printf 'pyspark==$(SPARK_OF_$*)\npandas<3\nsetuptools\n' > $(VENV)-spark$*/older.txt
	@$(BIN)/uv pip install --quiet --python $(VENV)-spark$*/bin/python --override $(VENV)-spark$*/older.txt \
		setuptools --editable '.[spark]' aiohttp hypothesis pytest pytest-asyncio pytest-timeout pytest-xdist
	@touch $@

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

# Makes the Iceberg tables of the tests anew, in an environment of its own: five minutes, with Java and Maven.
iceberg-tables:
	@$(PYTHON) -m venv .venv-iceberg
	.venv-iceberg/bin/pip install --quiet pyspark==4.1.4 pyarrow
	mvn -q dependency:copy -DoutputDirectory=.venv-iceberg \
		-Dartifact=org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0
	.venv-iceberg/bin/python tests/tables/make_iceberg.py \
		.venv-iceberg/iceberg-spark-runtime-4.1_2.13-1.12.0.jar tests/tables/iceberg

clean:
	rm -rf $(VENV) $(LOWEST_VENV) $(DIST_VENV) $(VENV)-spark35 $(VENV)-spark40 $(VENV)-spark42 .venv-iceberg site build dist demo-data bench-data .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/uv: | $(VENV)/bin/python
	@$(PIP) install --quiet uv

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
