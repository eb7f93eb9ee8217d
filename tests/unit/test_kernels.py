"""Compute functions called directly, against those of `pyarrow.compute`."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from accel import kernels
from accel.arrays import one

INTS = pa.array([1, 2, None, 5])
FLOATS = pa.array([1.0, float("nan"), None, -0.0])
TRUTHS = pa.array([True, None, False, True])
TEXTS = pa.array(["alpha", "beta", None, "Alp"])
BY_TYPE = {
    "filter": (INTS, TRUTHS),
    "take": (TEXTS, pa.array([3, None, 0])),
    "invert": (TRUTHS,),
    "if_else": (TRUTHS, INTS, INTS),
}
BY_TYPE |= {
    name: (TRUTHS, pa.array([None, True, False, False]))
    for name in ("and_", "or_", "and_kleene", "or_kleene")
}
BY_TYPE |= {name: (FLOATS,) for name in ("is_nan", "is_null", "is_valid")}


@pytest.mark.parametrize("name", sorted(kernels.PLAIN))
def test_plain_functions(name):
    values = BY_TYPE.get(name, (INTS, pa.array([3, 2, 1, None])))
    assert getattr(kernels, name)(*values).equals(getattr(pc, name)(*values))
    if len(values) == 2 and name not in BY_TYPE:
        assert getattr(kernels, name)(INTS, one(2, pa.int64())).equals(getattr(pc, name)(INTS, 2))


OPTIONS = {
    "is_in": (INTS, {"value_set": pa.array([5, 1])}),
    "match_substring": (TEXTS, {"pattern": "LP", "ignore_case": True}),
    "match_substring_regex": (TEXTS, {"pattern": "^a.*a$", "ignore_case": False}),
    "starts_with": (TEXTS, {"pattern": "al", "ignore_case": True}),
    "ends_with": (TEXTS, {"pattern": "a"}),
}


@pytest.mark.parametrize("name", kernels.OPTIONS)
def test_functions_with_options(name):
    values, options = OPTIONS[name]
    assert getattr(kernels, name)(values, **options).equals(getattr(pc, name)(values, **options))


def test_nulls_filled():
    assert kernels.fill_null(TRUTHS, pa.scalar(False)).equals(pc.fill_null(TRUTHS, False))
    assert kernels.fill_null(INTS, 7).equals(pc.fill_null(INTS, 7))


def test_other_names_come_from_pyarrow():
    assert kernels.min_max is pc.min_max
    with pytest.raises(AttributeError):
        kernels.no_such_function  # noqa: B018


def test_pyarrow_compute_stays_away():
    program = "import sys\nfrom accel import kernels\nkernels.equal, kernels.is_in\nprint('pyarrow.compute' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
