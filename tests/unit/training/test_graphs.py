"""Batches laid into fixed shapes; CUDA graphs of them need a GPU (tests/unit/test_cuda.py)."""

import threading
import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seq2see import special
from seq2see.config import Model, Training
from seq2see.model.build import build, without_weights
from seq2see.model.interface import Seq2Seq
from seq2see.tokens.batches import Batch
from seq2see.training import graphs
from seq2see.training.graphs import Shape, laid_out, sizes
from seq2see.training.loss import teacher_forced

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


def test_batches_of_short_sentences_share_a_shape_whatever_their_lengths() -> None:
    """The kernels are the same for all sentences of up to 32 tokens, so that more shapes would only cost time."""

    def of(longest: int) -> Shape:
        lengths = [longest] * (480 // longest)
        return Shape.of(Batch(*packed(lengths, 5), *packed(lengths, 5)))

    assert of(16) == of(20) == of(30)
    assert of(40) != of(30)


def test_kernels_are_compiled_beside_other_work_and_then_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside it, for a copy of the model without values: no random numbers are drawn."""
    compiled: list[tuple[str, str]] = []

    def compile_slowly(model: Seq2Seq, settings: Training, bfloat16: bool) -> None:
        time.sleep(0.1)
        compiled.append((threading.current_thread().name, next(model.parameters()).device.type))

    moved: list[str] = []
    monkeypatch.setattr(torch.nn.Module, "to_empty", lambda self, device: moved.append(device) or self)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(graphs, "_compile_kernels", compile_slowly)
    settings = Model(encoder_layers=1, decoder_layers=1, d_model=8, heads=2, d_ff=16)
    model = build(settings, 20, 30)
    before = torch.get_rng_state()
    graphs.begin_compiling(lambda: build(settings, 20, 30), Training(), bfloat16=False)
    graphs.compile_kernels(model, Training(), bfloat16=False)
    assert compiled == [("kernels", "meta"), (threading.current_thread().name, "cpu")]
    assert moved == ["cuda:1"]
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("positions", ["rotary", "sinusoid", "learned"])
def test_a_model_made_without_values_runs(positions: str) -> None:
    """All its tensors are weights or buffers, so that none is left behind when memory is allocated."""
    with without_weights():
        model = build(Model(encoder_layers=1, decoder_layers=1, d_model=8, heads=2, positions=positions), 20, 30)
    model = model.to_empty(device="cpu")
    batch = Batch(*packed([4, 3], 5), *packed([2, 6], 5))
    teacher_forced(
        model, batch.source_N, batch.source_offsets, batch.inputs_N, batch.target_offsets, batch.target_N
    ).total.backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_errors_beside_other_work_are_left_to_who_needs_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Seq2Seq:
        raise RuntimeError

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(graphs, "_compile_kernels", lambda *_: None)

    def begin_and_wait() -> None:
        graphs.begin_compiling(fail, Training(), bfloat16=False)
        graphs.compile_kernels(build(Model(d_model=8, heads=2), 20, 30), Training(), bfloat16=False)

    with pytest.warns(UserWarning, match="could not be compiled ahead"):
        begin_and_wait()

    # After Ctrl-C, Python waits for the thread, which can start no others any more: nothing for the user to know.
    monkeypatch.setattr(threading, "main_thread", lambda: threading.Thread())
    begin_and_wait()


def test_a_model_computes_with_copies_of_its_weights_only_inside():
    model = build(Model(encoder_layers=1, decoder_layers=1, d_model=16, heads=2, d_ff=32), 20, 20)
    copies = graphs.WeightCopies(model)
    weight = model.encoder[0].feed_forward.w_1.weight
    named = dict(model.named_parameters())
    with copies.used():
        inside = model.encoder[0].feed_forward.w_1.weight
        assert inside.dtype == torch.bfloat16
        assert torch.equal(inside, weight.bfloat16())
        assert inside.requires_grad
        assert model.output.weight is model.target_embedding.tokens.weight, "embeddings are not copied"
        assert model.output.weight.dtype == torch.float32
    with pytest.raises(RuntimeError, match="stopped"), copies.used():
        raise RuntimeError("stopped")
    assert all(one is other for one, other in zip(model.parameters(), named.values(), strict=True))
    with torch.no_grad():
        weight.fill_(3.0)
    with copies.used():
        assert (model.encoder[0].feed_forward.w_1.weight == 3).all(), "copied again"
