import itertools
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import stores
from seq2see import special
from seq2see.tokens import batches
from seq2see.tokens.batches import Batch, Batches


@dataclass(frozen=True)
class Lengths:
    """A store of which only the lengths are asked."""

    source: list[int]
    target: list[int]

    def __len__(self):
        return len(self.source)

    def source_lengths(self, indices):
        return np.array(self.source, dtype=np.int64)[indices]

    def target_lengths(self, indices):
        return np.array(self.target, dtype=np.int64)[indices]


@st.composite
def plans(draw):
    pairs = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60))
    lengths = Lengths([source for source, _ in pairs], [target for _, target in pairs])
    return Batches(lengths, draw(st.integers(1, 200)), draw(st.integers(1, 70)), draw(st.integers(0, 2**40)))


@settings(deadline=None)
@given(count=st.integers(1, 3000), key=st.lists(st.integers(0, 2**40), min_size=1, max_size=3).map(tuple))
def test_a_shuffle_is_one_to_one(count, key):
    order = batches.shuffled(np.arange(count), count, key)
    assert sorted(order.tolist()) == list(range(count))


@settings(deadline=None)
@given(data=st.data(), count=st.integers(1, 2**40))
def test_a_place_of_a_shuffle_does_not_depend_on_the_others_asked(data, count):
    places = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=20, unique=True))
    together = batches.shuffled(np.array(places), count, (7, 0))
    alone = [int(batches.shuffled(np.array([place]), count, (7, 0))[0]) for place in places]
    assert together.tolist() == alone
    assert len(set(alone)) == len(alone)
    assert max(alone) < count


@settings(deadline=None)
@given(count=st.integers(50, 500), seed=st.integers(0, 1000), epoch=st.integers(0, 1000))
def test_epochs_and_seeds_differ(count, seed, epoch):
    def order(*key):
        return batches.shuffled(np.arange(count), count, key).tolist()

    assert order(seed, epoch) == order(seed, epoch)
    assert order(seed, epoch) != order(seed, epoch + 1)
    assert order(seed, epoch) != order(seed + 1, epoch)


@settings(deadline=None)
@given(plan=plans())
def test_every_pair_once_per_epoch_within_the_budget(plan):
    for epoch in range(2):
        indices = [batch for batch, _ in replace(plan, position=batches.Position(epoch)).one_epoch()]
        assert sorted(np.concatenate(indices).tolist()) == list(range(len(plan.store)))
        for batch in indices:
            tokens = int((plan.store.source_lengths(batch) + plan.store.target_lengths(batch)).sum())
            assert len(batch) >= 1
            assert tokens <= plan.batch_tokens or len(batch) == 1


@settings(deadline=None)
@given(plan=plans(), stop=st.integers(1, 40))
def test_resumed_anywhere_is_uninterrupted(plan, stop):
    run = [(batch.tolist(), after) for batch, after in itertools.islice(plan, stop + 10)]
    resumed = replace(plan, position=run[stop - 1][1])
    assert [(batch.tolist(), after) for batch, after in itertools.islice(resumed, 10)] == run[stop:]


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(2, 60) | st.just(300), min_size=1, max_size=80),
    micro_tokens=st.integers(1, 500),
    world=st.integers(1, 9),
)
def test_ranks_share_a_batch_without_overlap(lengths, micro_tokens, world):
    indices = np.arange(len(lengths)) + 1000
    parts = [batches.split(indices, np.array(lengths), micro_tokens, rank, world) for rank in range(world)]
    micro_batches = [some.tolist() for part in parts for some in part]
    assert sorted(itertools.chain(*micro_batches)) == indices.tolist()
    assert all(some == list(range(some[0], some[-1] + 1)) for some in micro_batches), "they are contiguous"
    for some in micro_batches:
        assert len(some) == 1 or sum(lengths[index - 1000] for index in some) <= micro_tokens
    passes = [len(part) for part in parts]
    assert max(passes) - min(passes) <= 1
    assert min(passes) >= 1 or len(lengths) < world


sentences = st.lists(st.integers(special.COUNT, 99), max_size=7)


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(sentences, sentences), min_size=1, max_size=8), data=st.data())
def test_packed_and_shifted_agree_with_plain_lists(tmp_path_factory, pairs, data):
    corpus = stores.write(tmp_path_factory.mktemp("store"), pairs, vocabulary=100)
    order = data.draw(st.lists(st.integers(0, len(pairs) - 1), min_size=1, max_size=10))
    batch: Batch = batches.make_batch(corpus, np.array(order))
    sources = [[*pairs[index][0], special.END] for index in order]
    targets = [[*pairs[index][1], special.END] for index in order]
    inputs = [[special.BEGIN, *pairs[index][1]] for index in order]
    assert batch.source_N.tolist() == list(itertools.chain(*sources))
    assert batch.target_N.tolist() == list(itertools.chain(*targets))
    assert batch.inputs_N.tolist() == list(itertools.chain(*inputs))
