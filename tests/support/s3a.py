"""Spark's own way to S3: the jars of S3A, which PySpark does not bring, and the settings of a session that
uses them."""

from __future__ import annotations

import pathlib
import subprocess
import sys

from tests.support.programs import cached_path
from tests.support.s3 import S3Admin

__all__ = ["install_s3a", "s3a_config"]

_HADOOP = "3.5.0"
"""Of PySpark 4.3's own jars of Hadoop."""
_FETCH_SECONDS = 500.0
_FETCH = """
import sys
from pyspark.sql import SparkSession
settings = dict(zip(sys.argv[1::2], sys.argv[2::2]))
SparkSession.builder.master("local[1]").config(map=settings).getOrCreate().stop()
"""


def install_s3a() -> pathlib.Path:
    """Return the folder of S3A's jars in the cache of tools, which Spark fills from Maven Central once.

    The jars are `hadoop-aws` and the AWS SDK's bundle, 660 MB. A session has them on its class path, and
    copies none.

    Raises
    ------
    FileNotFoundError
        Maven Central does not give them.
    """
    folder = cached_path(f"hadoop-aws-{_HADOOP}")
    done = folder / "complete"
    if not done.exists():
        print("fetching S3A's jars once, 660 MB, from Maven Central", file=sys.stderr)
        package = f"org.apache.hadoop:hadoop-aws:{_HADOOP}"
        settings = {
            "spark.jars.packages": package,
            "spark.jars.ivy": str(folder),
            "spark.ui.enabled": "false",
        }
        words = [word for pair in settings.items() for word in pair]
        command = [sys.executable, "-c", _FETCH, *words]
        try:
            fetched = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise FileNotFoundError(f"{package} takes too long") from None
        if fetched.returncode:
            raise FileNotFoundError(f"Maven Central gave no {package}: {fetched.stderr.strip()[-500:]}")
        done.touch()
    return folder / "jars"


def s3a_config(jars: pathlib.Path, server: S3Admin, endpoint: str | None = None) -> dict[str, str]:
    """Return the settings of a session that reads `s3a://` from a server, or from a proxy before it."""
    s3a = {
        "endpoint": endpoint or server.url,
        "endpoint.region": "us-east-1",
        "access.key": server.access_key,
        "secret.key": server.secret_key,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }
    classes = {f"spark.{side}.extraClassPath": f"{jars}/*" for side in ("driver", "executor")}
    return {**classes, **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}}
