"""Profiles of AWS: credentials, region and endpoint from the files that `aws configure` writes, read by
botocore; and the roles of clusters, containers and machines, which it asks for where it is installed.

botocore takes 160 ms to import. So it is imported only if no credentials of S3 are given in another way: at
once where a profile is named or its files exist, else with the first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import urlsplit

from cachetools import LRUCache

from accel.errors import StoreError
from accel.runtime.threads import CREDENTIALS
from accel.store.request_errors import quoted

__all__ = [
    "Profile",
    "ProfileCredentials",
    "ProfileError",
    "find_profile",
    "profile_identity",
    "searched_places",
]

INSTALL: Final = "pip install 'accel-parquet[aws]'"
# Options that name the credentials, or another place where obstore finds them.
_GIVEN = (
    *("access_key_id", "secret_access_key", "session_token", "token", "credential_provider"),
    *("container_credentials_relative_uri", "container_credentials_full_uri", "metadata_endpoint"),
    *("role_arn", "web_identity_token_file"),
)
# Hadoop's names of the same, which the options of a caller may have.
_HADOOP = ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_NAMES = ("AWS_DEFAULT_PROFILE", "AWS_PROFILE")  # in botocore's order
_FILES = (
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    ("AWS_CONFIG_FILE", "~/.aws/config"),
)
# Settings of a profile that lead to credentials; without one of them, those of the machine are asked for.
_LEADS_TO = ("aws_access_key_id", "credential_", "role_arn", "sso_", "web_identity_", "login_")
_TRUE = ("1", "true", "yes", "on")
_MOST_CHAINED = 16
_TOKEN_FILE: Final = "AWS_WEB_IDENTITY_TOKEN_FILE"
_OF_ROLES: Final = f"see the variables {_TOKEN_FILE}, AWS_ROLE_ARN and AWS_CONTAINER_CREDENTIALS_…"
NO_CREDENTIALS: Final = "no credentials were found"
_SERVICES: Final = {"custom-process": "credential_process", "container-role": "service in the container"}
_OF_MACHINES: Final = ("assume-role-with-web-identity", "container-role", "iam-role")
"""botocore's names of what gives a cluster, a container or a machine its role."""
PATIENCE = 60.0
"""Seconds after which a profile that gives no credentials has failed, as a `credential_process` may wait for
ever."""
FAILED_FOR = 1.0
"""Seconds in which a failure is not tried again, as many requests ask at once."""
_LEAST_LEFT = 30.0
"""Seconds that credentials must have left to be used after they could not be refreshed."""
_SEPARATOR = "\x1f"


class ProfileError(Exception):
    """Why a profile gives no credentials. Its text crosses obstore, which passes on nothing else of it."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}{_SEPARATOR}{hint}")
        self.message = message
        self.hint = hint

    @staticmethod
    def parse(text: str) -> tuple[str, str | None]:
        """Return the message and the hint in the text of such an error."""
        message, _, hint = text.partition(_SEPARATOR)
        return message, hint or None


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profile holds for S3."""

    credentials: ProfileCredentials | None = field(repr=False)
    """obstore's `credential_provider`; None if obstore is to look for those of the machine."""
    region: str | None
    endpoint: str | None


class ProfileCredentials:
    """The credentials of a profile, as a `credential_provider` of obstore, which asks again before they end.

    Parameters
    ----------
    session : botocore.session.Session
    name : str
        The name of the profile.
    """

    def __init__(self, session: Any, name: str) -> None:
        self._session = session
        self._name = name
        self._what = f"the profile {name!r}"
        self._silent = "its credential_process, or a server, does not answer"
        self._server: str | None = None
        """The server that botocore has asked last, as STS; None where it has asked none."""
        self._failure: tuple[float, ProfileError] | None = None
        self._last: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"ProfileCredentials({self._name!r})"

    @property
    def seconds_left(self) -> float | None:
        """The seconds until the last credentials end; None if they do not."""
        end = None if self._last is None else self._last["expires_at"]
        return None if end is None else float((end - datetime.now(UTC)).total_seconds())

    async def __call__(self) -> dict[str, Any]:
        """Return the credentials, with the time when they end.

        Raises
        ------
        ProfileError
        """
        if self._failure is not None and time.monotonic() < self._failure[0]:
            # A new one, as several tasks may raise it.
            raise ProfileError(self._failure[1].message, self._failure[1].hint)
        failure: ProfileError
        try:
            async with asyncio.timeout(PATIENCE):
                # It may run a program, or ask a server.
                self._last = await CREDENTIALS.run(self._resolve)
        except TimeoutError:
            failure = ProfileError(
                f"{self._what} gave no credentials in {PATIENCE:g} seconds", self._hint(self._silent)
            )
        except ProfileError as error:
            failure = error
        else:
            self._failure = None
            return self._last
        left = self.seconds_left
        if self._last is not None and left is not None and left > _LEAST_LEFT:
            return self._last
        self._failure = time.monotonic() + FAILED_FOR, ProfileError(failure.message, failure.hint)
        raise failure

    def _resolve(self) -> dict[str, Any]:
        try:
            credentials = self._found()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        except Exception as error:  # noqa: BLE001 (of botocore, and of what it calls)
            failure = _failure_of(error, self._what, self._name)
            failure = ProfileError(failure.message, self._hint(failure.hint))
        else:
            if frozen is not None and frozen.access_key and frozen.secret_key:
                end = getattr(credentials, "_expiry_time", None)
                return {
                    "access_key_id": frozen.access_key,
                    "secret_access_key": frozen.secret_key,
                    "token": frozen.token,
                    # obstore takes no other time zone.
                    "expires_at": None if end is None else end.astimezone(UTC),
                }
            failure = self._missing()
        raise failure  # not from the cause, which may quote what a program printed

    def _found(self) -> Any:
        self._watch(self._session)
        return self._session.get_credentials()

    def _watch(self, session: Any) -> None:
        """Note which server a session asks for credentials."""
        # The same function at each call, so that botocore keeps one of it.
        session.register("before-send", self._note_server, unique_id="accel")

    def _note_server(self, request: Any, **_: Any) -> None:
        self._server = urlsplit(str(request.url)).netloc.rpartition("@")[2]

    def _hint(self, hint: str) -> str:
        return hint if self._server is None else f"it was asked of {self._server}; {hint}"

    def _missing(self) -> ProfileError:
        return ProfileError(f"{self._what} has no credentials", f"looked in {_list_files()}")


class MachineCredentials(ProfileCredentials):
    """The credentials of the role that a cluster, a container or a machine has.

    obstore has its own way to them, which knows neither all variables of the environment nor time limits that
    end before those of a read.
    """

    def __init__(self) -> None:
        super().__init__(None, "")
        self._what = "the role of this cluster, container or machine"
        self._silent = f"STS does not answer; {_OF_ROLES}"

    def __repr__(self) -> str:
        return "MachineCredentials()"

    def _found(self) -> Any:
        if self._session is None:
            import botocore.session

            session = botocore.session.Session()
            resolver = session.get_component("credential_provider")
            resolver.providers = [each for each in resolver.providers if each.METHOD in _OF_MACHINES]
            self._watch(session)
            self._session = session
        return self._session.get_credentials()

    def _missing(self) -> ProfileError:
        return ProfileError(NO_CREDENTIALS, "")  # whoever translates it says what was looked for


def find_profile(config: Mapping[str, Any], *, root: str) -> Profile | None:
    """Return the profile that a store of S3 takes its credentials from.

    Parameters
    ----------
    config : mapping
        The options of the store, by obstore's names in lower case, and `profile`.
    root : str
        The root of the store, for errors.

    Returns
    -------
    Profile or None
        None: they come from elsewhere, or botocore, which would find them, is not installed.

    Raises
    ------
    StoreError
        A profile is named that there is not, or that needs what accel does not have.
    """
    name = _named(config)
    source = _source_of(config)
    if source is _Source.GIVEN:
        return None
    if source is _Source.MACHINE:
        return Profile(_credentials_of_machine(), None, None) if _has_botocore() else None
    if name is not None:
        _check_name(name, config, root)
    try:
        import botocore.exceptions
        import botocore.session
    except ImportError:
        if name is None:
            return None
        raise StoreError(
            "storage option 'profile' is read by botocore, which is not installed", path=root, hint=INSTALL
        ) from None
    key = (name, *map(_hash_of, _paths()), *_variables())
    found = _profiles.get(key)
    if found is not None:
        return found
    failure: StoreError
    try:
        session = botocore.session.Session(profile=name)
        scoped = session.get_scoped_config()
        found = _profiles[key] = _profile_of(session, scoped, named=name is not None, root=root)
        return found
    except botocore.exceptions.ProfileNotFound:
        known = sorted(session.available_profiles)
        there = f"there are {', '.join(known[:20])}" if known else "there is none"
        failure = StoreError(
            f"there is no profile {_name_of(name)!r}", path=root, hint=f"looked in {_list_files()}: {there}"
        )
    except botocore.exceptions.BotoCoreError as error:
        failure = StoreError(
            f"the profile cannot be read: {quoted(str(error), 300)}", path=root, hint=f"see {_list_files()}"
        )
    raise failure


def profile_identity(options: Mapping[str, Any]) -> list[str]:
    """Return what tells the profile apart that options lead to: hashes of its files; nothing if none is used.

    The name itself is among the options or the variables of the environment.
    """
    if _source_of({str(name).lower(): value for name, value in options.items()}) is not _Source.PROFILE:
        return []
    return [_hash_of(path) for path in _paths()]


def searched_places() -> str:
    """Return where credentials of S3 were looked for, and what is there, for an error."""
    files = _list_files()
    if any(map(os.path.exists, _paths())):
        files += (
            ", which has none" if _has_botocore() else f", which only botocore reads ({INSTALL} brings it)"
        )
    return (
        f"looked in `storage_options`; in {' and '.join(_KEYS)} of the environment; in the profile "
        f"{_name_of(None)!r} of {files}; at the service for the cloud's own machines"
    )


class _Source(Enum):
    """Who has the credentials of a store."""

    GIVEN = auto()
    """The options, or variables of the environment; nobody, for an anonymous store."""
    PROFILE = auto()
    MACHINE = auto()


def _source_of(config: Mapping[str, Any]) -> _Source:
    if _named(config) is not None:
        return _Source.PROFILE
    if any(name in config or f"aws_{name}" in config for name in _GIVEN) or any(
        name in config or f"spark.hadoop.{name}" in config for name in _HADOOP
    ):
        return _Source.GIVEN
    anonymous = config.get("skip_signature", config.get("aws_skip_signature"))
    if str(anonymous if anonymous is not None else os.environ.get("AWS_SKIP_SIGNATURE")).lower() in _TRUE:
        return _Source.GIVEN
    if any(map(os.environ.get, _KEYS)):
        return _Source.GIVEN
    if any(map(os.environ.get, _NAMES)):
        return _Source.PROFILE
    if not os.environ.get(_TOKEN_FILE) and any(map(os.path.exists, _paths())):
        return _Source.PROFILE
    # obstore's own variable, which botocore does not know.
    return _Source.GIVEN if os.environ.get("AWS_METADATA_ENDPOINT") else _Source.MACHINE


def _named(config: Mapping[str, Any]) -> Any:
    return config.get("profile", config.get("aws_profile"))


def _check_name(name: Any, config: Mapping[str, Any], root: str) -> None:
    if not isinstance(name, str) or not name:
        raise StoreError("storage option 'profile' is not a name", path=root)
    beside = [each for each in (*_GIVEN, "skip_signature") if each in config or f"aws_{each}" in config]
    if beside:
        raise StoreError(
            f"storage option 'profile' is given beside {beside[0]!r}",
            path=root,
            hint="both say what the credentials are: give one of them",
        )


def _profile_of(session: Any, scoped: Mapping[str, Any], *, named: bool, root: str) -> Profile:
    name = _name_of(session.profile)
    endpoint = _endpoint_in(session.full_config, scoped)
    region = session.get_config_variable("region")
    if not any(key.startswith(_LEADS_TO) for key in scoped):
        if named:
            raise StoreError(
                f"the profile {name!r} has no credentials", path=root, hint=f"looked in {_list_files()}"
            )
        return Profile(_credentials_of_machine(), region, endpoint)
    _refuse_prompt(session.full_config["profiles"], name, root)
    resolver = session.get_component("credential_provider")
    for machine in ("container-role", "iam-role"):
        # A profile that leads nowhere is an error.
        with contextlib.suppress(Exception):
            resolver.remove(machine)
    return Profile(ProfileCredentials(session, name), region, endpoint)


def _credentials_of_machine() -> MachineCredentials:
    """Return the credentials of the machine, which all stores share."""
    key = _variables()
    found = _machines.get(key)
    if found is None:
        found = _machines[key] = MachineCredentials()
    return found


def _refuse_prompt(profiles: Mapping[str, Any], name: str, root: str) -> None:
    """Refuse a role whose code would be read from the terminal, in a thread that nobody sees."""
    for _ in range(_MOST_CHAINED):
        profile = profiles.get(name, {})
        if "role_arn" not in profile:
            return
        if "mfa_serial" in profile:
            raise StoreError(
                f"the profile {name!r} asks for the code of an MFA device, which accel cannot ask for",
                path=root,
                hint="give the keys that `aws configure export-credentials` prints, or a credential_process",
            )
        name = profile.get("source_profile", "")


def _endpoint_in(full: Mapping[str, Any], scoped: Mapping[str, Any]) -> str | None:
    ignored = os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") or scoped.get(
        "ignore_configured_endpoint_urls", ""
    )
    if str(ignored).lower() in _TRUE:
        return None
    services = full.get("services", {}).get(scoped.get("services"), {})
    service = services.get("s3") if isinstance(services, Mapping) else None
    endpoint = service.get("endpoint_url") if isinstance(service, Mapping) else None
    endpoint = endpoint or scoped.get("endpoint_url")
    return str(endpoint) if endpoint else None


def _failure_of(error: Exception, what: str, name: str) -> ProfileError:
    """Return the error to raise. It quotes neither programs nor signed requests, in which there may be
    secrets."""
    from botocore import exceptions

    token = os.environ.get(_TOKEN_FILE)
    hint = f"see {_list_files()}" if name else _OF_ROLES
    if isinstance(error, exceptions.ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        message = error.response.get("Error", {}).get("Message", "") if code == "AccessDenied" else ""
        detail = f"{error.operation_name} was refused: {code} {message}".rstrip()
    elif isinstance(error, (exceptions.SSOError, exceptions.TokenRetrievalError)):
        detail, hint = "its session has ended, or never began", f"run `aws sso login --profile {name}`"
    elif isinstance(error, exceptions.CredentialRetrievalError):
        provider = str(error.kwargs.get("provider"))
        detail = f"its {_SERVICES.get(provider, provider)} failed"
    elif isinstance(error, exceptions.BotoCoreError):
        detail = str(error)
    elif isinstance(error, OSError) and token and error.filename == token:
        detail = f"the file of {_TOKEN_FILE} cannot be read: {error.strerror}"
    else:
        detail = type(error).__name__
    return ProfileError(f"{what} gave no credentials: {quoted(' '.join(detail.split()), 300)}", hint)


def _variables() -> tuple[tuple[str, str], ...]:
    return tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))


def _name_of(name: str | None) -> str:
    return name or next(filter(None, map(os.environ.get, _NAMES)), "default")


def _paths() -> list[str]:
    return [os.path.expanduser(os.environ.get(variable) or usual) for variable, usual in _FILES]


def _list_files() -> str:
    return " and ".join(path if os.path.exists(path) else f"{path} (no such file)" for path in _paths())


def _has_botocore() -> bool:
    import importlib.util

    return importlib.util.find_spec("botocore") is not None


# By name, content of the files and environment: buckets share what a program or a server gave.
_profiles: LRUCache[tuple[object, ...], Profile] = LRUCache(32)
# By environment.
_machines: LRUCache[tuple[object, ...], MachineCredentials] = LRUCache(32)
# By path: what tells the state of a file, and the hash of its content then.
_hashes: dict[str, tuple[tuple[int, int, int], str]] = {}


def _hash_of(path: str) -> str:
    """Return the hash of a file's content, which equal files of other machines share; "" if it cannot be
    read."""
    import hashlib

    try:
        status = os.stat(path)
        state = (status.st_ino, status.st_size, status.st_mtime_ns)
        last = _hashes.get(path)
        if last is None or last[0] != state:
            with open(path, "rb") as file:
                last = _hashes[path] = state, hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    except OSError:
        return ""
    return last[1]
