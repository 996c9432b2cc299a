"""Batches laid into fixed shapes; what is recorded of them needs a GPU (tests/unit/test_cuda.py)."""

from itertools import pairwise

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from seq2see import special
from seq2see.tokens.batches import Batch
from seq2see.training.graphs import Shape, laid_out, sizes

lengths = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=60)


def packed(sides: list[int], first: int) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = [[first + place for place in range(length - 1)] + [special.END] for length in sides]
    return torch.tensor([token for each in tokens for token in each]), torch.tensor([0, *sides]).cumsum(0)


@given(lengths)
def test_a_batch_keeps_its_numbers_and_the_rest_is_padding(pairs):
    batch = Batch(*packed([s for s, _ in pairs], 5), *packed([t for _, t in pairs], 200))
    shape = Shape.of(batch)
    cuts = np.cumsum(sizes(shape))[:-1]
    *parts, links = np.split(laid_out(batch, shape), cuts)
    source, source_places, source_offsets, inputs, places, offsets, labels = parts
    assert (links == -1).all(), "no token of this batch has a link"
    for tokens, expected in (
        (source, batch.source_N),
        (inputs, batch.inputs_N),
        (labels, batch.target_N),
    ):
        assert tokens[: len(expected)].tolist() == expected.tolist()
        assert (tokens[len(expected) :] == special.PAD).all()
    sides = (
        (source_places, source_offsets, batch.source_offsets, shape.longest_source),
        (places, offsets, batch.target_offsets, shape.longest_target),
    )
    for own_places, own_offsets, expected, longest in sides:
        assert own_offsets[: len(expected)].tolist() == expected.tolist()
        assert own_offsets[-1] == len(own_places)  # every row belongs to a sentence
        assert (np.diff(own_offsets) >= 0).all()
        assert np.diff(own_offsets).max() <= longest
        for first, last in pairwise(own_offsets):
            assert own_places[first:last].tolist() == list(range(last - first))


def test_batches_of_about_one_size_share_a_shape():
    def of(count):
        return Shape.of(Batch(*packed([20] * count, 5), *packed([22] * count, 5)))

    assert of(188) == of(189) == of(190)
