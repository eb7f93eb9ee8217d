"""What a metastore is asked about partitions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from accel.predicate.parser import parse
from accel.tables.formats.hive.filters import filter_text

SCHEMA = pa.schema([
    ("x", pa.int64()), ("K", pa.int32()), ("p", pa.string()), ("d", pa.date32()), ("f", pa.float64()),
    ("m", pa.decimal128(5, 2)), ("odd key", pa.int32()),
])  # fmt: skip
KEYS = {"k": "K", "p": "p", "d": "d", "f": "f", "m": "m", "odd key": "odd key"}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("K = 7", "(k >= 7 and k <= 7)"),
        ("7 < K", "k > 7"),
        ("K <> 7", "(k < 7 or k > 7)"),
        ("K >= -3", "k >= -3"),
        ("K IN (1, NULL, 2, 1)", "((k >= 1 and k <= 1) or (k >= 2 and k <= 2))"),
        ("p = 'eu'", 'p = "eu"'),
        ("p = 'it''s'", 'p = "it\'s"'),
        ("p = 'a\"b'", "p = 'a\"b'"),
        ("p IN ('a', 'b')", '(p = "a" or p = "b")'),
        ("d >= '2024-02-01'", "d >= '2024-02-01'"),
        ("d BETWEEN '2024-02-01' AND '2024-02-03'", "(d >= '2024-02-01' and d <= '2024-02-03')"),
        ("K > 1 AND x = 5", "k > 1"),
        ("K > 1 AND p LIKE 'a%' AND d < '2024-01-01'", "(k > 1 and d < '2024-01-01')"),
        ("K > 1 OR p = 'a'", '(k > 1 or p = "a")'),
        ("(K > 1 AND x = 5) OR p = 'a'", '(k > 1 or p = "a")'),
        # What it cannot say, or says with another meaning.
        ("x = 5", None),
        ("K > 1 OR x = 5", None),
        ("p > 'a'", None),
        ("p <> 'a'", None),
        ("p = 'a''b\"c'", None),
        ("p = 'a\\b'", None),
        ("p = ''", None),
        ("p = ' a'", None),
        ("p = 'ä'", None),
        ("p = 'a\nb'", None),
        ("p IN ('a', 'ä')", None),
        ("K IS NULL", None),
        ("NOT (p LIKE 'a')", None),
        ("f = 1", None),
        ("m > 1", None),
        ("K > 1.5", None),
        ("d > '2024-2-1'", None),
        ("d > '2024-02-31'", None),
        ('"odd key" = 1', None),
        ("K IS DISTINCT FROM 7", None),
        ("K = 4611686018427387904", None),
        ("K IN (NULL)", None),
    ],
)  # fmt: skip
def test_a_filter_says_what_it_can(where: str, expected: str | None) -> None:
    assert filter_text(parse(where), KEYS, SCHEMA) == expected


def test_long_filters_are_left_out() -> None:
    many = " OR ".join(f"K = {at}" for at in range(60))
    assert filter_text(parse(many), KEYS, SCHEMA) is None
    long = ", ".join(f"'{'x' * 200}{at}'" for at in range(45))
    assert filter_text(parse(f"p IN ({long})"), KEYS, SCHEMA) is None
