"""One local Spark for all tests of this folder, with this very Python in its workers."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_cluster import QUICK_START

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timeType.enabled": "true",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2]; its scratch files and its warehouse lie in a temporary directory."""
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    builder = SparkSession.builder.master("local[2]").appName("accel tests")
    own = {"spark.local.dir": str(scratch / "local"), "spark.sql.warehouse.dir": str(scratch / "warehouse")}
    for key, value in {**CONFIG, **own}.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # pyspark's own, about the version of pandas
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """pyspark 4.3 warns of pandas 3 on many calls, though mapInArrow has no use for pandas."""
    marker = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(marker)
