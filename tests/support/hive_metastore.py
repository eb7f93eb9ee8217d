"""A Hive Metastore on a free port of the loopback: classes of PySpark's jars, over Derby in a temporary
directory."""

from __future__ import annotations

import importlib.util
import pathlib
import shutil

from tests.support.maven import JAVA_SOURCES, find_java
from tests.support.programs import DirectoryProgram

__all__ = ["HiveMetastore", "find_metastore"]


def find_metastore() -> pathlib.Path:
    """Return the folder of PySpark's jars.

    Raises
    ------
    FileNotFoundError
        There is no PySpark, or no Java.
    """
    find_java()
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise FileNotFoundError("there is no pyspark")
    return pathlib.Path(found.origin).parent / "jars"


class HiveMetastore(DirectoryProgram):
    """A server, for the time of a `with`.

    Parameters
    ----------
    jars : Path
        What `find_metastore` returned.
    """

    name = "hive"
    start_seconds = 240.0

    def __init__(self, jars: pathlib.Path) -> None:
        super().__init__()
        self._jars = jars

    @property
    def url(self) -> str:
        """Its URL."""
        return f"thrift://127.0.0.1:{self.port}"

    @property
    def warehouse(self) -> pathlib.Path:
        """The directory of the tables that are made without a location."""
        return self.directory / "warehouse"

    def command(self, port: int) -> list[str]:
        self.port = port
        shutil.rmtree(self.directory / "derby", ignore_errors=True)
        packages = ("java.lang", "java.util", "java.net", "java.util.concurrent")
        properties = {
            "javax.jdo.option.ConnectionURL": (
                f"jdbc:derby:;databaseName={self.directory}/derby;create=true"
            ),
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": str(self.warehouse),
            "derby.stream.error.file": f"{self.directory}/derby.log",
            # Log4j finds its contexts by the stack otherwise, which source files that are run do not have.
            "log4j2.contextSelector": "org.apache.logging.log4j.core.selector.BasicContextSelector",
        }
        return [
            find_java(),
            "-Xmx512m",
            "-XX:+UseSerialGC",
            # Most of its life is its start: with the better compiler that takes 15 s of CPU, without it 7.
            "-XX:TieredStopAtLevel=1",
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in packages),
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp",
            f"{self._jars}/*",
            str(JAVA_SOURCES / "Metastore.java"),
            str(port),
        ]

    def ready(self, port: int) -> None:
        from accel.tables.formats.hive.metastore import metastore_at

        try:
            metastore_at(f"thrift://127.0.0.1:{port}").ask_now("get_all_databases")
        except Exception as error:  # noqa: BLE001 - not yet
            raise OSError(str(error)) from None
