"""Jars for the servers of tests: from Maven, by the pom files beside this module, into the cache of tools."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from tests.support.programs import cached_path

__all__ = ["JAVA_SOURCES", "find_java", "install_jars"]

JAVA_SOURCES = pathlib.Path(__file__).with_name("java")
"""The folder of the pom files, and of the Java sources that are run as they are."""
_FETCH_SECONDS = 550.0


def find_java() -> str:
    """Return the program `java`, 17 or later.

    Raises
    ------
    FileNotFoundError
        There is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else None
    java = java or shutil.which("java")
    if java is None:
        raise FileNotFoundError("no java on PATH: on Debian, apt-get install openjdk-17-jre-headless")
    return java


def install_jars(name: str, version: str) -> pathlib.Path:
    """Return the folder with the jars of `NAME.pom.xml`, which Maven copies once for each version.

    Raises
    ------
    FileNotFoundError
        There is no Maven, or it does not get them.
    """
    folder = cached_path(f"{name}-{version}")
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise FileNotFoundError(f"no mvn on PATH to get the jars of {name} with: apt-get install maven")
    folder.parent.mkdir(parents=True, exist_ok=True)
    print(f"fetching the jars of {name} {version} once into {folder}", file=sys.stderr)
    pom = str(JAVA_SOURCES / f"{name}.pom.xml")
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        jars = pathlib.Path(scratch) / "jars"
        command = [maven, "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise FileNotFoundError(f"the jars of {name} take too long") from None
        if done.returncode:
            raise FileNotFoundError(f"Maven gave no jars of {name}: {done.stdout.strip()[-500:]}")
        if not folder.is_dir():
            # A rename, so that two processes at once do not see half of each other's files.
            try:
                os.replace(jars, folder)
            except OSError:
                if not folder.is_dir():
                    raise
    return folder
