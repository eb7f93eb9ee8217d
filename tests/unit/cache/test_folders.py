from __future__ import annotations

from accel.cache.folders import Folders


def test_names_are_remembered_until_they_are_forgotten() -> None:
    folders = Folders()
    assert "a" not in folders
    folders.add("a")
    folders.add("b")
    folders.discard("a")
    folders.discard("never there")
    assert ("a" in folders, "b" in folders) == (False, True)
    folders.clear()
    assert "b" not in folders


def test_the_last_thousand_are_remembered() -> None:
    folders = Folders()
    for number in range(1025):
        folders.add(str(number))
    assert ("0" in folders, "1" in folders, "1024" in folders) == (False, True, True)
