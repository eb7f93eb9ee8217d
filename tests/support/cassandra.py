"""A Cassandra server of one node, on free ports of the loopback, with a password."""

from __future__ import annotations

import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from tests.support.maven import find_java, install_jars
from tests.support.programs import Program, free_port

if TYPE_CHECKING:
    from cassandra.cluster import Session

__all__ = ["VERSION", "Cassandra", "find_cassandra"]

VERSION = "5.0.9"
_PACKAGES = {
    "java.base": (
        "jdk.internal.misc jdk.internal.ref jdk.internal.loader jdk.internal.math jdk.internal.module "
        "jdk.internal.util.jar java.io java.lang java.lang.reflect java.lang.module java.net java.nio "
        "java.util java.util.concurrent java.util.concurrent.atomic sun.nio.ch"
    ),
    "java.rmi": "sun.rmi.transport sun.rmi.transport.tcp sun.rmi.registry sun.rmi.server",
    "java.sql": "java.sql",
    "java.management.rmi": "com.sun.jmx.remote.internal.rmi",
    "jdk.management": "com.sun.management.internal",
    "java.management": "com.sun.jmx.mbeanserver",
}
"""What Cassandra uses of Java's own modules, which do not export it."""
_LOGBACK = """<configuration>
  <appender name="F" class="ch.qos.logback.core.FileAppender">
    <file>%s/system.log</file>
    <encoder><pattern>%%-5level %%date %%msg%%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="F"/></root>
</configuration>
"""


def find_cassandra() -> pathlib.Path:
    """Return the folder of Cassandra's jars, which Maven fetches once: 67 MB.

    Raises
    ------
    FileNotFoundError
        There is no Java or no Maven, or it does not get them.
    """
    find_java()
    return install_jars("cassandra", VERSION)


class Cassandra:
    """A server, as a context manager; what it holds is gone at the end, and stays when it is only restarted.

    Parameters
    ----------
    jars : Path
        What `find_cassandra` returned.
    settings : mapping, optional
        More lines of its cassandra.yaml.
    """

    user = "cassandra"
    password = "cassandra"
    """The user that a new cluster has."""
    authorities: pathlib.Path
    """The certificate of the server, which has signed itself; it speaks TLS to whoever begins with it."""

    def __init__(self, jars: pathlib.Path, *, settings: Mapping[str, str] | None = None) -> None:
        self._jars = jars
        self._settings = settings or {}
        self._directory = pathlib.Path()
        self._program: Program | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="accel-cassandra-"))
        try:
            self.authorities = self._make_certificate()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self.end()
        shutil.rmtree(self._directory, ignore_errors=True)

    def url(self, keyspace: str, name: str = "", *, password: str | None = None, **settings: object) -> str:
        """Return the URL of an index in a keyspace."""
        secret = quote(self.password if password is None else password, safe="")
        query = "&".join(f"{key}={value}" for key, value in settings.items())
        address = f"cassandra://{self.user}:{secret}@127.0.0.1:{self.port}/{keyspace}"
        return address + (f"?{query}" if query else "") + (f"#{name}" if name else "")

    def new_keyspace(self) -> str:
        """Make a keyspace with one replica, and return its name."""
        name = f"test_{secrets.token_hex(6)}"
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        self.execute(f"CREATE KEYSPACE {name} WITH replication = {replication}")
        return name

    def execute(self, statement: str, *parameters: object) -> list[tuple[object, ...]]:
        """Run a statement over a connection of its own, and return the rows."""
        from cassandra.cluster import Cluster

        with Cluster(**self._connection()) as cluster:
            session: Session = cluster.connect()
            return list(map(tuple, session.execute(statement, parameters or None)))

    def start(self) -> None:
        """Start it; again on the same port, with what it held."""
        again = self.port

        def command(port: int) -> list[str]:
            self.port = again or port
            return self._command(free_port())

        # A process whose machine is busy takes more than a minute.
        self._program = Program.start(command, self._ready, seconds=180.0)

    def end(self) -> None:
        """End it as a crash would, but for what it has not written within the last ten seconds."""
        if self._program is not None:
            self._program.end()
            self._program = None

    def signal(self, number: int) -> None:
        """Send a signal to it."""
        if self._program is not None:
            self._program.signal(number)

    def _make_certificate(self) -> pathlib.Path:
        store, certificate = self._directory / "keys.p12", self._directory / "server.pem"
        keytool = str(pathlib.Path(find_java()).with_name("keytool"))
        given = ["-alias", "server", "-keystore", str(store), "-storepass", _STORE_PASSWORD]
        names = ["-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1", "-validity", "2"]
        for command in (
            ["-genkeypair", "-keyalg", "EC", "-storetype", "PKCS12", *names],
            ["-exportcert", "-rfc", "-file", str(certificate)],
        ):
            subprocess.run([keytool, *command, *given], check=True, capture_output=True, timeout=120)
        return certificate

    def _connection(self) -> dict[str, object]:
        from cassandra.auth import PlainTextAuthProvider

        return {
            "contact_points": ["127.0.0.1"],
            "port": self.port,
            "auth_provider": PlainTextAuthProvider(self.user, self.password),
            "connect_timeout": 10,
        }

    def _command(self, storage_port: int) -> list[str]:
        folder = self._directory
        places = {
            "data_file_directories": f"[{folder}/data]",
            **{
                f"{name}_directory": f"{folder}/{name}"
                for name in ("commitlog", "hints", "saved_caches", "cdc_raw")
            },
        }
        seeds = f"{{class_name: {_SEEDS}, parameters: [{{seeds: '127.0.0.1:{storage_port}'}}]}}"
        settings = {
            "cluster_name": "accel",
            "num_tokens": "1",
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "commitlog_sync": "periodic",
            "commitlog_sync_period": "10000ms",
            "commitlog_segment_size": "8MiB",
            "memtable_heap_space": "64MiB",
            "memtable_offheap_space": "64MiB",
            "endpoint_snitch": "SimpleSnitch",
            "listen_address": "127.0.0.1",
            "rpc_address": "127.0.0.1",
            "storage_port": str(storage_port),
            "native_transport_port": str(self.port),
            "seed_provider": f"[{seeds}]",
            "authenticator": "PasswordAuthenticator",
            "auth_read_consistency_level": "ONE",
            "client_encryption_options": (
                f"{{enabled: true, optional: true, keystore: {folder}/keys.p12, "
                f"keystore_password: {_STORE_PASSWORD}, store_type: PKCS12}}"
            ),
            **places,
            **self._settings,
        }
        yaml = "".join(f"{name}: {value}\n" for name, value in settings.items())
        (folder / "cassandra.yaml").write_text(yaml)
        (folder / "logback.xml").write_text(_LOGBACK % folder)
        modules = [
            f"--add-{what}={module}/{package}=ALL-UNNAMED"
            for module, packages in _PACKAGES.items()
            for package in packages.split()
            for what in ("opens", "exports")
        ]
        properties = {
            "jdk.attach.allowAttachSelf": "true",
            "io.netty.tryReflectionSetAccessible": "true",
            "logback.configurationFile": f"{folder}/logback.xml",
            "cassandra.config": f"file://{folder}/cassandra.yaml",
            "cassandra.storagedir": folder,
            "cassandra-foreground": "yes",
            "cassandra.superuser_setup_delay_ms": "0",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.ring_delay_ms": "100",
            "cassandra.jmx.local.port": str(free_port()),
        }
        return [
            find_java(),
            "-Xmx384m",
            "-XX:+UseSerialGC",
            *modules,
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp",
            f"{self._jars}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def _ready(self, _: int) -> None:
        # The port is open before the user is there.
        with socket.create_connection(("127.0.0.1", self.port), timeout=1):
            pass
        from cassandra.cluster import NoHostAvailable

        try:
            self.execute("SELECT key FROM system.local")
        except (NoHostAvailable, OSError) as error:
            raise OSError(str(error)) from None


_STORE_PASSWORD = "certificates"
_SEEDS = "org.apache.cassandra.locator.SimpleSeedProvider"


if __name__ == "__main__":
    print(os.fspath(find_cassandra()))
