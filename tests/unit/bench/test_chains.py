"""The depth of dependent requests, from begins and ends."""

import pytest

from bench.chains import round_trips


@pytest.mark.parametrize(
    ("times", "depth"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([(0.0, 1.0)], 1, id="one"),
        pytest.param([(0.0, 1.0), (0.1, 1.2), (0.2, 0.9)], 1, id="all at once"),
        pytest.param([(0.0, 1.0), (1.0, 2.0), (2.5, 3.0)], 3, id="one after the other"),
        pytest.param([(0.0, 3.0), (0.0, 1.0), (1.1, 2.0), (2.1, 4.0)], 3, id="a long one beside a chain"),
        pytest.param([(1.0, 2.0), (0.0, 1.0)], 2, id="in any order"),
        pytest.param([(0.0, 1.0), (0.9, 1.5), (1.0, 2.0)], 2, id="one of them waited"),
    ],
)
def test_round_trips(times: list[tuple[float, float]], depth: int) -> None:
    assert round_trips(times) == depth
