"""What a test asks of an S3 server besides reading: buckets, objects, a policy. Signed with AWS Signature 4."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import json
import urllib.parse
import urllib.request

__all__ = ["S3Admin"]

_REGION = "us-east-1"


class S3Admin:
    """The blocking, single-request verbs that tests prepare an S3 server with.

    Parameters
    ----------
    url : str
        The server, path-style: "http://127.0.0.1:9000".
    access_key, secret_key : str
        The server's root user.
    """

    kind = "s3"

    def __init__(
        self, url: str = "", *, access_key: str = "accel-test", secret_key: str = "accel-secret"
    ) -> None:
        self.url = url
        self.access_key = access_key
        self.secret_key = secret_key

    def storage_options(self, endpoint: str | None = None) -> dict[str, str]:
        """Obstore's options for this server, or for a proxy before it."""
        return {
            "endpoint": endpoint or self.url,
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "region": _REGION,
            "allow_http": "true",
        }

    def list_buckets(self) -> bytes:
        """The server's own XML list of buckets; OSError while it is not ready to serve."""
        return self._request("GET", "/")

    def create_bucket(self, name: str, *, public: bool = False) -> None:
        """Make a bucket; a public one may be listed and read by anybody."""
        self._request("PUT", f"/{name}")
        if public:
            statements = [
                {
                    "Effect": "Allow",
                    "Principal": "*",
                    "Action": [action],
                    "Resource": [resource],
                }
                for action, resource in (
                    ("s3:ListBucket", f"arn:aws:s3:::{name}"),
                    ("s3:GetObject", f"arn:aws:s3:::{name}/*"),
                )
            ]
            policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
            self._request("PUT", f"/{name}", query="policy=", body=policy.encode())

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Write or overwrite one object."""
        self._request("PUT", f"/{bucket}/{key}", body=data)

    def delete(self, bucket: str, key: str) -> None:
        """Remove one object."""
        self._request("DELETE", f"/{bucket}/{key}")

    def signed_get(self, path: str) -> tuple[str, dict[str, str]]:
        """The target, percent-encoded, and the headers of a GET of "/bucket/key", for another client to send."""
        target = urllib.parse.quote(path)
        return target, self._signed("GET", target)

    def _request(self, method: str, path: str, *, query: str = "", body: bytes = b"") -> bytes:
        path = urllib.parse.quote(path)
        # urllib would say that the body is a form, and some servers then read it as one.
        headers = {**self._signed(method, path, query, body), "content-type": "application/octet-stream"}
        url = f"{self.url}{path}" + (f"?{query}" if query else "")
        request = urllib.request.Request(url, data=body or None, headers=headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            content: bytes = answer.read()
            return content

    def _signed(self, method: str, path: str, query: str = "", body: bytes = b"") -> dict[str, str]:
        """The headers of a signed request; it may bear others, unsigned."""
        signed = {
            "host": urllib.parse.urlsplit(self.url).netloc,
            "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
            "x-amz-date": datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ"),
        }
        return {**signed, "authorization": self._authorization(method, path, query, signed)}

    def _authorization(self, method: str, path: str, query: str, signed: dict[str, str]) -> str:
        """The header of AWS Signature Version 4 over `signed` (sorted, lower-case names)."""
        names = ";".join(signed)
        lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
        canonical = "\n".join((method, path, query, lines, names, signed["x-amz-content-sha256"]))
        date = signed["x-amz-date"]
        scope = f"{date[:8]}/{_REGION}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = b"AWS4" + self.secret_key.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}".encode(), "sha256").hex()
        credential = f"{self.access_key}/{scope}"
        return f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
