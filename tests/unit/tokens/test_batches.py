import dataclasses
import itertools
import json
import random
import time

import numpy as np
import pytest
import torch

import stores
from seq2see import special
from seq2see.errors import DataError
from seq2see.tokens import batches, store
from seq2see.tokens.batches import Batches, Position

PAD, BEGIN, END = special.PAD, special.BEGIN, special.END


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """300 pairs of many lengths; token ids tell the pair."""
    dice = random.Random(1)
    pairs = [([4 + i] * dice.randrange(1, 30), [4 + i] * dice.randrange(0, 20)) for i in range(300)]
    return stores.write(tmp_path_factory.mktemp("corpus"), pairs, vocabulary=304)


@pytest.fixture
def batch(tmp_path):
    small = stores.write(tmp_path, [([4, 5, 6], [7]), ([8], []), ([9, 10], [11, 12, 13])], vocabulary=14)
    return batches.make_batch(small, np.array([2, 0, 1]))


def test_a_batch_is_packed_in_the_order_asked(batch):
    assert batch.source_N.tolist() == [9, 10, END, 4, 5, 6, END, 8, END]
    assert batch.source_offsets.tolist() == [0, 3, 7, 9]
    assert batch.target_N.tolist() == [11, 12, 13, END, 7, END, END]
    assert batch.target_offsets.tolist() == [0, 4, 6, 7]
    assert (len(batch), batch.source_tokens, batch.target_tokens) == (3, 9, 7)
    assert batch.source_N.dtype == batch.target_offsets.dtype == torch.int64


def test_inputs_are_the_labels_shifted_right(batch):
    assert batch.inputs_N.tolist() == [BEGIN, 11, 12, 13, BEGIN, 7, BEGIN]
    assert batch.target_N.tolist() == [11, 12, 13, END, 7, END, END], "the labels stay as they were"


def test_links_are_in_the_row_that_reads_a_token(tmp_path):
    small = stores.write(tmp_path, [([4, 5, 6], [7]), ([8], []), ([9, 10], [11, 12, 13])], vocabulary=14)
    links = [2, store.NO_LINK, store.NO_LINK, 1, store.NO_LINK, 0, store.NO_LINK]
    (tmp_path / store.LINKS).write_bytes(np.array(links, "<u2").tobytes())
    batch = batches.make_batch(store.Store(tmp_path), np.array([2, 0, 1]), links=True)
    assert batch.inputs_N.tolist() == [BEGIN, 11, 12, 13, BEGIN, 7, BEGIN]
    assert batch.links_N.tolist() == [-1, 1, -1, 0, -1, 2, -1]
    assert batch.twice().links_N.tolist() == 2 * [-1, 1, -1, 0, -1, 2, -1]
    assert batch.to("cpu").links_N is batch.links_N
    assert batches.make_batch(small, np.array([0])).links_N is None
    with pytest.raises(DataError, match=r"training\.alignment_weight"):
        batches.make_batch(small, np.array([0]), links=True)


def test_to_moves_tokens_and_leaves_offsets(batch):
    moved = batch.to("meta")
    assert (moved.source_N.device.type, moved.target_N.device.type) == ("meta", "meta")
    assert moved.source_offsets.tolist() == [0, 3, 7, 9]
    assert moved.target_offsets.tolist() == [0, 4, 6, 7]


def test_batches_hold_pairs_of_like_length_and_come_in_mixed_order(corpus):
    plan = Batches(corpus, batch_tokens=200, window_pairs=300, seed=1)
    targets = [corpus.target_lengths(indices) for indices, _ in plan.one_epoch()]
    assert max(lengths.max() - lengths.min() for lengths in targets) <= 6
    means = [lengths.mean() for lengths in targets]
    assert means not in (sorted(means), sorted(means, reverse=True))


def test_a_pair_above_the_budget_is_a_batch_alone(corpus):
    plan = Batches(corpus, batch_tokens=1, window_pairs=70, seed=1)
    assert [len(indices) for indices, _ in plan.one_epoch()] == [1] * 300


def test_a_budget_may_be_used_up_to_the_last_token(tmp_path):
    even = stores.write(tmp_path, [([4], [5, 6])] * 9, vocabulary=7)  # 5 tokens a pair, with the two ENDs
    assert [len(indices) for indices, _ in Batches(even, 15, 9, seed=1).one_epoch()] == [3, 3, 3]


def test_batches_are_well_filled(corpus):
    plan = Batches(corpus, batch_tokens=500, window_pairs=300, seed=1)
    least = (corpus.source_tokens + corpus.target_tokens) / 500
    assert len(list(plan.one_epoch())) <= least * 1.15


def test_epochs_and_seeds_make_other_batches_in_another_order(corpus):
    plan = Batches(corpus, batch_tokens=300, window_pairs=128, seed=5)
    others = [dataclasses.replace(plan, position=Position(1)), dataclasses.replace(plan, seed=6)]
    first, *rest = [[tuple(sorted(indices.tolist())) for indices, _ in each.one_epoch()] for each in (plan, *others)]
    assert all(len(set(first) & set(batches)) < len(first) / 4 for batches in rest), "not the same pairs together"
    single = Batches(Fake(10_000), batch_tokens=1, window_pairs=5000, seed=5)
    lengths = [[int(pair) % 50 for [pair] in single.window(0, window)] for window in range(2)]
    assert abs(np.corrcoef(lengths)[0, 1]) < 0.1, "nor the same lengths at the same time"


def test_a_position_is_json_and_crosses_epochs(corpus):
    plan = Batches(corpus, batch_tokens=300, window_pairs=128, seed=5)
    run = list(itertools.islice(plan, 100))
    assert run[-1][1].epoch >= 2
    for step in (1, 30, 63):
        saved = json.loads(json.dumps(dataclasses.asdict(run[step - 1][1])))
        resumed = dataclasses.replace(plan, position=Position(**saved))
        for (indices, after), (expected, expected_after) in zip(resumed, run[step:], strict=False):
            assert indices.tolist() == expected.tolist()
            assert after == expected_after


def test_a_position_of_another_plan_is_left_at_the_next_window(corpus):
    plan = Batches(corpus, batch_tokens=300, window_pairs=128, seed=5)
    lost = dataclasses.replace(plan, position=Position(0, 0, 999))
    expected = dataclasses.replace(plan, position=Position(0, 1, 0))
    assert next(iter(lost))[0].tolist() == next(iter(expected))[0].tolist()
    beyond = dataclasses.replace(plan, position=Position(0, 99, 0))
    assert next(iter(beyond))[1].epoch == 1


class Fake:
    """Lengths without a corpus: as many pairs as one likes."""

    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return self.pairs

    def source_lengths(self, indices):
        return indices % 50 + 1

    target_lengths = source_lengths


def test_starting_in_the_middle_of_ten_million_pairs_costs_one_window():
    plan = Batches(Fake(10_000_000), 8192, 20_000, seed=1, position=Position(3, 250, 7))
    start = time.thread_time()  # a busy machine does not count
    indices, after = next(iter(plan))
    assert time.thread_time() - start < 1.0
    assert after == Position(3, 250, 8)
    assert indices.max() < 10_000_000


def test_the_order_is_the_same_on_every_machine():
    """Written down once: a change here breaks the resuming of runs that are under way."""
    assert batches.shuffled(np.arange(10), 10, (1, 0)).tolist() == [6, 9, 1, 8, 2, 3, 7, 0, 4, 5]
    assert batches.shuffled(np.arange(3), 10**9, (1, 2)).tolist() == [985496365, 442618097, 409223328]


def test_a_shuffle_is_even():
    """Each element lands in each tenth about as often as chance has it, over 400 keys."""
    tenth = np.stack([batches.shuffled(np.arange(100), 100, (seed, 0)) for seed in range(400)]) // 10
    counts = np.stack([(tenth == value).sum(0) for value in range(10)])
    assert counts.sum() == 40_000
    assert counts.min() > 10
    assert counts.max() < 80  # expected 40, standard deviation 6


def test_neighbours_do_not_stay_neighbours():
    order = batches.shuffled(np.arange(100_000), 100_000, (1, 0))
    assert (np.abs(np.diff(order)) == 1).sum() < 20
    assert abs(np.corrcoef(order, np.arange(100_000))[0, 1]) < 0.02


def test_split_balances_ranks():
    lengths = np.sort(np.random.default_rng(1).integers(10, 60, 400))
    parts = [batches.split(np.arange(400), lengths, 900, rank, world=4) for rank in range(4)]
    assert len({len(part) for part in parts}) == 1
    shares = [sum(lengths[some].sum() for some in part) for part in parts]
    assert max(shares) < 1.1 * min(shares)


def test_split_with_one_rank_and_room_is_the_whole_batch():
    [micro_batch] = batches.split(np.array([5, 3, 9]), np.array([2, 2, 4]), micro_tokens=8)
    assert micro_batch.tolist() == [5, 3, 9]


def test_split_gives_every_rank_work_where_pairs_suffice():
    lengths = np.array([1, 1, 1, 100])
    parts = [batches.split(np.arange(4), lengths, 1000, rank, world=4) for rank in range(4)]
    assert [some.tolist() for part in parts for some in part] == [[0], [1], [2], [3]]
    assert batches.split(np.arange(1), np.array([5]), 1000, rank=1, world=2) == []
