"""CPU seconds and peak memory of one call: of this process, and of those that it has started."""

from __future__ import annotations

import os
import pathlib
import resource
import sys
import time

__all__ = ["Footprint"]

_PROC = pathlib.Path("/proc")
_TICK = os.sysconf("SC_CLK_TCK")


class Footprint:
    """Starts counting when it is made.

    This process's CPU time is exact to the microsecond; that of others of its session (Spark's JVM and Python
    workers) is counted in the kernel's ticks, mostly 10 ms. Peak memory needs Linux; elsewhere it is the most
    of the process's whole life.
    """

    def __init__(self) -> None:
        self._others = {pid: _ticks(pid) for pid in _session()}
        for pid in (os.getpid(), *self._others):
            _reset_peak(pid)
        self._cpu = _own_cpu()

    def end(self) -> tuple[float, int]:
        """CPU seconds and peak bytes since."""
        cpu = _own_cpu() - self._cpu
        peak = _peak(os.getpid()) or _most_ever()
        others = _session()
        if others:
            # Ticks are credited when they end.
            time.sleep(1 / _TICK)
        for pid in others:
            cpu += max(0, _ticks(pid) - self._others.get(pid, 0)) / _TICK
            peak += _peak(pid)
        return cpu, peak


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _most_ever() -> int:
    """The most resident bytes of this process's whole life."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024  # only macOS counts bytes


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, state first; none when the process is gone."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _session() -> list[int]:
    """The other processes of this one's session, if it leads one: then they are what it has started."""
    own = os.getpid()
    if not _PROC.exists() or os.getsid(0) != own:
        return []
    found = (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())
    return [pid for pid in found if pid != own and (stat := _stat(pid)) and int(stat[3]) == own]


def _ticks(pid: int) -> int:
    stat = _stat(pid)
    # utime, stime, and those of children that ended.
    return sum(map(int, stat[11:15])) if stat else 0


def _reset_peak(pid: int) -> None:
    try:
        (_PROC / str(pid) / "clear_refs").write_text("5")
    except OSError:
        pass


def _peak(pid: int) -> int:
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
