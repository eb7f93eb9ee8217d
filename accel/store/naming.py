"""What a request fails with told with the whole address: a store knows only the path in it."""

from __future__ import annotations

from types import TracebackType

from accel.errors import AccelError, redact
from accel.store.cancels import UnaskedTold
from accel.store.location import LOCAL_ROOT

__all__ = ["Naming"]


class Naming(UnaskedTold):
    """Within it, errors name an object as its caller does.

    Parameters
    ----------
    root : str
        Of the store.
    path : str
        In it.
    """

    __slots__ = ("_path", "_root")

    def __init__(self, root: str, path: str) -> None:
        self._root, self._path = root, path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            return
        try:
            super().__exit__(kind, error, traceback)
        except AccelError as told:
            self._name(told)
            raise
        if isinstance(error, AccelError):
            self._name(error)

    def _name(self, error: AccelError) -> None:
        path = self._path
        base = f"{path.rstrip('/')}/".lstrip("/")
        if error.path and error.path.startswith(base) and error.path[0] != "/" and "://" not in error.path:
            path = error.path  # below: one directory of those that are listed
        whole = path if self._root in ("store:", "") else f"{self._root}/{path}"
        error.path = redact(whole.removeprefix(LOCAL_ROOT))
