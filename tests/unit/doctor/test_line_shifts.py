"""Sides out of step are found to the line; sides that are in step, or that have nothing in common, are not."""

import numpy as np
import pytest

from seq2see.doctor.line_shifts import FEWEST, Shift, SideNumbers, shifts


def sides(rows: int, seed: int = 1, noise: float = 0.15) -> tuple[SideNumbers, SideNumbers]:
    """Lengths that go together, some digits and signs: like sentences and their translations."""
    dice = np.random.default_rng(seed)
    source = dice.lognormal(4, 0.5, rows).astype(int) + 1
    target = (source * dice.lognormal(0.1, noise, rows)).astype(int) + 1
    digits = np.where(dice.random(rows) < 0.2, dice.integers(1, 60_000, rows), 0).astype(np.uint16)
    signs = dice.choice([0, 1, 4, 8, 128], rows, p=[0.6, 0.1, 0.1, 0.1, 0.1]).astype(np.uint8)
    return SideNumbers(source, digits, signs), SideNumbers(target, digits, signs)


def moved(side: SideNumbers, start: int, lag: int, end: int | None = None) -> SideNumbers:
    """The rows from `start` to `end` pushed down, or pulled up; what falls out at the end of them is lost."""
    rows = np.arange(len(side.length))
    part = slice(start, end)
    rows[part] = np.roll(rows[part], lag)
    return side.at(rows)


@pytest.mark.parametrize("lag", [1, -1, 2, -3, 5])
@pytest.mark.parametrize("start", [0, 700, 1234])
def test_a_shift_is_found_where_it_begins(start: int, lag: int) -> None:
    source, target = sides(3000)
    (found,) = shifts(source, moved(target, start, lag))
    assert (found.lag, found.end) == (lag, 3000)
    assert abs(found.start - start) <= 10


def test_a_shift_that_ends_and_another() -> None:
    source, target = sides(5000)
    one, other = shifts(source, moved(moved(target, 1000, 1, 2000), 3000, -2))
    assert (one.lag, other.lag) == (1, -2)
    assert np.abs(np.subtract((one.start, one.end, other.start), (1000, 2000, 3000))).max() <= 10
    assert other.end == 5000


def test_a_shift_in_a_small_file() -> None:
    source, target = sides(600)
    (found,) = shifts(source, moved(target, 300, 1))
    assert abs(found.start - 300) <= 10


@pytest.mark.parametrize("seed", range(5))
def test_a_small_file_whose_sides_are_less_alike(seed: int) -> None:
    """A third of it is too short a window to be sure."""
    none = {"digits": np.zeros(300, np.uint16), "signs": np.zeros(300, np.uint8)}
    source, target = (side._replace(**none) for side in sides(300, seed, noise=0.3))
    (found,) = shifts(source, moved(target, 30, 1))
    assert abs(found.start - 30) <= 30
    assert shifts(source, target) == []


@pytest.mark.parametrize("seed", range(5))
def test_sides_in_step(seed: int) -> None:
    source, target = sides(3000, seed)
    assert shifts(source, target) == []
    order = np.argsort(source.length, kind="stable")  # sorted by length: neighbours are alike
    assert shifts(source.at(order), target.at(order)) == []


@pytest.mark.parametrize("seed", range(20))
def test_sides_that_have_nothing_in_common(seed: int) -> None:
    source, _ = sides(3000, seed)
    target, _ = sides(3000, seed + 1000)
    assert shifts(source, target) == []


def test_few_rows_say_nothing() -> None:
    source, target = sides(FEWEST - 1)
    assert shifts(source, moved(target, 0, 1)) == []
    assert shifts(*sides(1)) == []
    nothing, _ = sides(1)
    assert shifts(nothing.at(np.arange(0)), nothing.at(np.arange(0))) == []


def test_texts_that_are_all_alike() -> None:
    same = SideNumbers(np.full(1000, 10), np.zeros(1000, np.uint16), np.zeros(1000, np.uint8))
    assert shifts(same, same) == []


def test_a_conversation_is_no_shift() -> None:
    """Each answer is the next question: the source fits another target perfectly, and rightly so."""
    turns, _ = sides(3001)
    rows = np.arange(3000)
    assert shifts(turns.at(rows), turns.at(rows + 1)) == []


def test_long_and_short_texts_in_turn_are_no_shift() -> None:
    dice = np.random.default_rng(1)
    lengths = np.where(np.arange(3000) % 2, 100, 20) + dice.integers(0, 15, 3000)
    source = SideNumbers(lengths, np.zeros(3000, np.uint16), np.zeros(3000, np.uint8))
    target = SideNumbers(lengths[::-1].copy(), source.digits, source.signs)
    assert shifts(source, target) == []


def test_a_lag_is_counted_downwards() -> None:
    source, target = sides(1000)
    assert shifts(source, moved(target, 0, 1))[0] == Shift(0, 1000, 1)
