"""What tells stores and objects apart: the token of a store and its credentials, and the identity of callers' objects."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar

from accel.store.location import LOCAL_ROOT

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["ByIdentity", "StorageOptions", "credentials_token", "lasts"]

StorageOptions = Mapping[str, Any]
Environment = tuple[tuple[str, str], ...]

_ENVIRONMENT = ("AWS_", "GOOGLE_", "AZURE_", "OBJECT_STORE_")
_LASTING = r"[0-9a-f]{32}"
# A bool is an int, too.
_PLAIN: tuple[Any, ...] = (bool, int, float, str, bytes)
# Objects in options that take no weak reference. One that is let go of has its metadata read anew.
_MOST_STRONG = 128
T = TypeVar("T")


class ByIdentity(Generic[T]):
    """What was made for an object: the same for the same object, and never for another that has its address later.

    Parameters
    ----------
    make : callable
        Called with an object that is not known.
    forget : callable, optional
        Called with what was made for an object that is gone: in any thread, and at exit without its module's names.
    most_held : int
        How many objects that take no weak reference are kept alive so as to be known.

    Notes
    -----
    Has no lock, as objects go in the middle of anything: two threads that bring a new one at once may each have their
    own of it made, of which the second is kept.
    """

    def __init__(
        self, make: Callable[[Any], T], *, forget: Callable[[T], object] | None = None, most_strong: int = 0
    ) -> None:
        self._make = make
        self._forget = forget
        self._most_strong = most_strong
        self._by_id: dict[int, tuple[weakref.ref[Any], T]] = {}
        self._strong: dict[int, tuple[object, T]] = {}

    def of(self, thing: object) -> T:
        """What is known of it.

        Raises
        ------
        TypeError
            It takes no weak reference, and none of that kind is held.
        """
        identity = id(thing)
        entry = self._by_id.get(identity)
        if entry is not None and entry[0]() is thing:
            return entry[1]
        held = self._strong.get(identity)
        if held is not None:
            return held[1]
        made = self._make(thing)
        known, forget = self._by_id, self._forget

        def gone(which: weakref.ref[Any]) -> None:
            last = known.get(identity)
            if last is not None and last[0] is which:
                del known[identity]
                if forget is not None:
                    forget(last[1])

        try:
            known[identity] = weakref.ref(thing, gone), made
        except TypeError:
            if not self._most_strong:
                raise
            if len(self._strong) >= self._most_strong:
                self._strong.clear()
            # The entry keeps it alive: its id stays its own.
            self._strong[identity] = thing, made
        return made


def credentials_token(root: str, options: StorageOptions | None) -> str:
    """A token that differs wherever the store or the credentials do, and tells neither.

    The environment counts too: obstore takes credentials from there. Processes come to the same one (`lasts`),
    unless an option is an object that only one of them has.
    """
    given = tuple(options.items()) if options else ()
    # Every scan asks. Texts are equal only where what is written of them is, too.
    if root != LOCAL_ROOT and all(type(name) is str and type(value) is str for name, value in given):
        return _fingerprint_of_texts(root, given, _environment())
    return _fingerprint(root, options, _environment())


@lru_cache(maxsize=128)
def _fingerprint_of_texts(root: str, given: tuple[tuple[str, str], ...], environment: Environment) -> str:
    return _fingerprint(root, dict(given), environment)


def _fingerprint(root: str, options: StorageOptions | None, environment: Environment) -> str:
    if root == LOCAL_ROOT and not options:
        # Nothing here is a secret, and hashing loads OpenSSL: 2 ms of a fresh process.
        return "file-" + os.uname().nodename.encode("utf-8", "surrogateescape").hex()
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    for part in (root, _canonical(options or {})):
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    if root == LOCAL_ROOT:
        # The same path is another file on another machine.
        digest.update(os.uname().nodename.encode("utf-8", "surrogateescape"))
    else:
        for name, value in environment:
            digest.update(f"{name}={value}\0".encode("utf-8", "surrogateescape"))
    return ("" if _is_plain(options or {}) else "process-") + digest.hexdigest()


def _environment() -> Environment:
    """The variables that say something of a store, by name."""
    # What `os.environ` is a view of, where that is to be had: a dictionary is compared at once, and its names are gone
    # through one by one only where it has changed.
    variables = getattr(os.environ, "_data", os.environ)
    known = _variables[0]
    if variables != known[0]:
        before = dict(variables)
        names = sorted(name for name in os.environ if name.startswith(_ENVIRONMENT))
        known = _variables[0] = (before, tuple((name, os.environ[name]) for name in names))
    return known[1]


# As they were last, and what of them says something of a store.
_variables: list[tuple[dict[Any, Any], Environment]] = [({}, ())]


def lasts(token: str) -> bool:
    """Whether a token is a fingerprint that stands for the same in every process."""
    return token.startswith("file-") or re.fullmatch(_LASTING, token) is not None


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(_is_plain(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, _PLAIN) or _is_time(value)


def _is_time(value: object) -> TypeGuard[timedelta]:
    from datetime import timedelta

    return isinstance(value, timedelta)


def _canonical(value: object) -> str:
    """What is equal only for values that come to the same store."""
    if isinstance(value, Mapping):
        inside = sorted((_canonical(key), _canonical(item)) for key, item in value.items())
        return "{" + ",".join(f"{key}:{item}" for key, item in inside) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if value is None:
        return "None"
    for kind in _PLAIN:
        if isinstance(value, kind):
            # One of a subclass may show something else, to hide a secret.
            return str(kind.__repr__(value))
    if _is_time(value):
        return f"<{value.days} {value.seconds} {value.microseconds}>"
    if isinstance(value, MethodType):  # another object each time that it is looked up
        return f"<{_objects.of(value.__self__)} {_objects.of(value.__func__)}>"
    return f"<{_objects.of(value)}>"  # a credential provider: the very same one


def _new_name(_: object) -> str:
    return os.urandom(16).hex()


_objects = ByIdentity(_new_name, most_strong=_MOST_STRONG)
