"""Texts looked up by whole columns: Arrow's own `take` says which."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from accel import kernels
from accel.decode import dictionary_arrays
from accel.decode.dictionary_arrays import take_texts

_KINDS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


def _random(rng: random.Random) -> tuple[pa.Array, pa.Array]:
    kind = rng.choice(_KINDS)
    entries = rng.choice([1, 2, 3, 7, 8, 9, 40, 64, 65, 300])
    same = rng.random() < 0.4
    lengths = (
        [rng.choice([0, 1, 2, 3, 4, 8, 17])] * entries if same else [rng.randrange(9) for _ in range(entries)]
    )
    words = ["".join(rng.choice("abcé") for _ in range(length)) for length in lengths]
    if same:
        words = [word.replace("é", "e") for word in words]
    dictionary = pa.array(["beside", *words, "it"]).cast(kind).slice(1, entries)
    count = rng.choice([1, 2, 7, 64, 1001])
    share = rng.choice([0.0, 0.0, 0.4, 1.0])
    places = [None if rng.random() < share else rng.randrange(entries) for _ in range(count + 5)]
    cut = rng.choice([0, 3])
    return dictionary, pa.array(places, pa.int32()).slice(cut, count)


@pytest.mark.parametrize("seed", range(300))
def test_as_arrow_takes_them(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(dictionary_arrays, "_LEAST_VALUES", 1)
    dictionary, indices = _random(rng)
    found = take_texts(dictionary, indices)
    found.validate(full=True)
    assert found.equals(kernels.take(dictionary, indices))


@pytest.mark.parametrize("words", [["a", "b"], ["a", "bcd"]], ids=["one length", "several"])
@pytest.mark.parametrize("place", [2, -1])
def test_an_index_that_names_no_entry_is_refused(
    words: list[str], place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    indices = pa.array(np.array([0, 1] * 5000 + [place], np.int32))
    with pytest.raises(pa.ArrowIndexError):
        take_texts(pa.array(words), indices)


def test_what_stands_under_a_null_is_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    places = np.array([0, 1, 77, 1] * 5000, np.int32)
    valid = pa.py_buffer(np.packbits(places != 77, bitorder="little"))
    indices = pa.Array.from_buffers(pa.int32(), len(places), [valid, pa.py_buffer(places)])
    for words in (["a", "b"], ["a", "bcd"]):
        found = take_texts(pa.array(words), indices)
        found.validate(full=True)
        assert found.to_pylist() == [words[0], words[1], None, words[1]] * 5000
