"""Credentials by the name of a function, so that no secret travels: every process that reads calls it
itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from accel.errors import StoreError

__all__ = ["check_name", "with_credentials"]


def check_name(name: object) -> str:
    """Return the name of a provider: `package.module:function`.

    Raises
    ------
    ValueError
        It is no such name.
    """
    parts = name.split(":") if isinstance(name, str) else ()
    if len(parts) != 2 or not all(part and part.replace(".", "_").isidentifier() for part in parts):
        raise ValueError(f"credentials names a function, as 'package.module:function', not {name!r:.80}")
    return str(name)


def with_credentials(keywords: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """Return the keywords of a scan with the storage options that a named function gives.

    Parameters
    ----------
    keywords : mapping
        The keywords. Their own storage options win.
    name : str or None
        `package.module:function`: a function without parameters that returns storage options, obstore's
        `credential_provider` among them. None: there is none.

    Returns
    -------
    dict
        The keywords.

    Raises
    ------
    StoreError
        This process has no such function, or it returned something else or raised an error.
    """
    if name is None:
        return dict(keywords)
    given = _call(name, _find(name))
    return {**keywords, "storage_options": {**given, **(keywords.get("storage_options") or {})}}


def _find(name: str) -> Callable[[], Any]:
    module, _, attribute = check_name(name).partition(":")
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise StoreError(
            f"the credentials {name!r} cannot be imported: {error}",
            hint="the driver and every executor need that module, as by --py-files",
        ) from None
    return found  # type: ignore[return-value]


def _call(name: str, function: Callable[[], Any]) -> Mapping[str, Any]:
    try:
        given = function()
    except Exception as error:  # noqa: BLE001 - the caller's own function
        # Its text might quote a secret.
        raise StoreError(f"the credentials {name!r} raised {type(error).__name__}") from None
    if not isinstance(given, Mapping):
        raise StoreError(f"the credentials {name!r} gave a {type(given).__name__}, not a mapping")
    return given
