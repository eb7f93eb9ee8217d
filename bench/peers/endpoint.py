"""Where the benchmark's objects are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["Endpoint"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A bucket of an S3 server, as a system is told to reach it."""

    url: str
    """Of the server, or of the slow network before it: "http://127.0.0.1:9000"."""
    access_key_id: str
    secret_access_key: str
    region: str
    bucket: str
    origin: str = ""
    """The same server past the slow network, for what is prepared outside the timing; by default `url`."""
    authorities: str = ""
    """By TLS, the file of the authority that vouches for the server, in PEM."""

    @property
    def tls(self) -> bool:
        """Whether it is reached by TLS."""
        return self.url.startswith("https:")

    def trust(self) -> None:
        """Have this process trust the authority, before any library looks for authorities.

        The environment variable SSL_CERT_FILE is what accel, obstore, Polars and DataFusion document, and what
        people set for them.
        """
        if self.authorities:
            os.environ["SSL_CERT_FILE"] = self.authorities

    @property
    def netloc(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc

    def object_url(self, key: str, *, scheme: str = "s3") -> str:
        """The URL of a key."""
        return f"{scheme}://{self.bucket}/{key}"

    def storage_options(self, *, past_network: bool = False) -> dict[str, str]:
        """obstore's options, which are accel's."""
        return {
            "endpoint": self.origin or self.url if past_network else self.url,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
            "region": self.region,
            "allow_http": "true",
        }
