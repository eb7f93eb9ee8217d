"""Fresh rows: random, and in places that no sample met before."""

from itertools import islice

from bench.sampling import fresh_rows, fresh_slots, row_of_each_group


def test_no_block_is_met_twice_before_all_were() -> None:
    rows = list(islice(fresh_rows(95, 3, block=10), 10))
    assert sorted(row // 10 for row in rows) == list(range(10))
    assert all(0 <= row < 95 for row in rows)


def test_the_same_seed_gives_the_same_rows() -> None:
    assert list(islice(fresh_rows(1000, 3), 5)) == list(islice(fresh_rows(1000, 3), 5))


def test_slots_come_again_in_another_order() -> None:
    slots = list(islice(fresh_slots(50, 1), 100))
    assert sorted(slots[:50]) == sorted(slots[50:]) == list(range(50))
    assert slots[:50] != slots[50:]


def test_a_row_near_the_start_of_each_group() -> None:
    assert row_of_each_group([0, 100, 400], 4) == [1, 103]
    assert row_of_each_group([0, 1, 2, 3, 4], 2) == [0, 2]
