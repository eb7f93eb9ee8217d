"""The reader of fenced blocks, on pages written here."""

from __future__ import annotations

import pytest

from tests.docs.fences import Fence, read_fences

PAGE = """# Title

```python
print(1)
```

<!-- prints -->
```text
1
```

<!-- not run: needs an account -->
```python
print(2)
```

1. A list

   ```shell
   accel --help
   ```

```text
nothing that runs
```
"""


def test_blocks_markers_and_output() -> None:
    assert read_fences(PAGE) == [
        Fence("python", "print(1)\n", 4, None, "1\n"),
        Fence("python", "print(2)\n", 14, "needs an account"),
        Fence("shell", "accel --help\n", 20),
        Fence("text", "nothing that runs\n", 24),
    ]
    assert [fence.runs for fence in read_fences(PAGE)] == [True, False, True, False]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("```python\nprint(1)\n", "line 1: the block never ends"),
        ("<!-- prints -->\n```text\n1\n```\n", "line 2: no block prints this"),
        ("```text\na\n```\n<!-- prints -->\n```text\n1\n```\n", "line 5: no block prints this"),
    ],
    ids=["open", "no block", "no code"],
)
def test_pages_that_are_wrong(page: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_fences(page)


@pytest.mark.parametrize(
    "marker", ["<!-- not run: -->", "<!-- not run -->", "<!-- not run:-->", "<!-- skip: later -->"], ids=str
)
def test_a_marker_without_a_reason_is_none(marker: str) -> None:
    (fence,) = read_fences(f"{marker}\n```python\nprint(1)\n```\n")
    assert fence.reason is None
    assert fence.runs
