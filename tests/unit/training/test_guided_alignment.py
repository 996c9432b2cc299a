"""The loss of the head that learns to align: what it is in every layout, and that nothing changes where it is off."""

from pathlib import Path

import pytest
import torch
from bench.alignment import generated, score

from seq2see import special
from seq2see.lens.capture import capture
from seq2see.model.packing import Packing
from seq2see.model.transformer import Transformer
from seq2see.tokens.batches import Batch
from seq2see.training import graphs, loop
from seq2see.training.graphs import Shape, laid_out, sizes
from seq2see.training.loss import teacher_forced

END = special.END
LAYER, HEAD = 1, 0


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(20, 20, encoder_layers=1, decoder_layers=3, d_model=8, heads=2, d_ff=16, dropout=0.0, norm="pre")


@pytest.fixture
def batch() -> Batch:
    return Batch(
        torch.tensor([4, 5, 6, END, 7, END, 8, 9, END]),
        torch.tensor([0, 4, 6, 9]),
        torch.tensor([10, 11, END, 12, 13, 14, 15, END, END]),
        torch.tensor([0, 3, 8, 9]),
        torch.tensor([-1, 2, 0, -1, 0, -1, 0, 0, -1]),
    )


def written_out(model: Transformer, batch: Batch) -> torch.Tensor:
    """Return the loss from the weights that are recorded while attention is written out."""
    name = f"decoder.{LAYER}.cross_attention.weights"
    with capture(model, lambda each: each == name) as seen:
        loop.loss_of(model, batch)
    weights_BHLM = seen[name][0]
    total, rows = 0.0, [(sentence, row) for sentence, length in enumerate((3, 5, 1)) for row in range(length)]
    for link, (sentence, row) in zip(batch.links_N.tolist(), rows, strict=True):
        if link >= 0:
            total -= float(weights_BHLM[sentence, HEAD, row, link].log())
    return torch.tensor(total)


def test_the_loss_is_the_cross_entropy_of_the_weights_and_the_links(model, batch):
    plain, with_links = loop.loss_of(model, batch), loop.loss_of(model, batch, alignment_weight=0.5)
    assert with_links.plain == plain.plain
    torch.testing.assert_close(with_links.total - plain.total, 0.5 * written_out(model, batch), rtol=1e-4, atol=1e-5)


def test_twice_for_two_passes_is_the_mean(model, batch):
    once = loop.loss_of(model, batch, alignment_weight=0.5).total
    twice = loop.loss_of(model, batch.twice(), agreement=1.0, alignment_weight=0.5).total  # without dropout they agree
    torch.testing.assert_close(twice, once)


def test_fixed_shapes_give_the_same_loss_and_gradient(model, batch):
    """What a GPU records is computed here on the CPU: packings whose offsets are numbers of the device."""

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss.backward()
        return model.decoder[LAYER].cross_attention.w_qkv.weight.grad.clone()

    shape = Shape.of(batch)
    parts = torch.split(torch.from_numpy(laid_out(batch, shape)), sizes(shape))
    source_N, source_places_N, source_offsets, inputs_N, places_N, offsets, labels_N, links_N = parts
    sources = Packing.fixed(source_offsets.to(torch.int32), source_places_N, shape.longest_source)
    targets = Packing.fixed(offsets.to(torch.int32), places_N, shape.longest_target)
    fixed = teacher_forced(model, source_N, sources, inputs_N, targets, labels_N, 0.0, 0.0, links_N, 0.5)
    plain = loop.loss_of(model, batch, alignment_weight=0.5)
    torch.testing.assert_close(fixed.total, plain.total)
    torch.testing.assert_close(gradient(fixed.total), gradient(plain.total), rtol=1e-4, atol=1e-6)


def test_only_the_queries_and_keys_of_one_head_learn_to_align(model, batch):
    plain = loop.loss_of(model, batch).total
    both = loop.loss_of(model, batch, alignment_weight=1.0).total
    (both - plain).backward()
    gradient = model.decoder[LAYER].cross_attention.w_qkv.weight.grad.abs().sum(1)
    assert (gradient[:4] > 1e-6).all()
    assert (gradient[8:12] > 1e-6).all()
    assert gradient[4:8].max() < 1e-5
    assert gradient[12:].max() < 1e-5
    assert not model.decoder[LAYER].cross_attention._forward_pre_hooks, "nothing is left behind"


def test_without_links_or_weight_nothing_changes(model, batch):
    plain = loop.loss_of(model, Batch(batch.source_N, batch.source_offsets, batch.target_N, batch.target_offsets))
    assert loop.loss_of(model, batch).total == plain.total
    unlinked = Batch(*(getattr(batch, name) for name in list(vars(batch))[:4]))
    assert loop.loss_of(model, unlinked, alignment_weight=1.0).total == plain.total
    assert graphs.laid_out(batch, Shape.of(batch))[-1] == -1


def test_scores_of_known_links():
    known = [({(0, 0), (1, 1)}, {(0, 0), (1, 1), (2, 1)})]
    assert score([{(0, 0), (1, 1)}], known) == (1.0, 0.0)
    assert score([{(0, 0), (2, 1)}], known) == (0.5, 0.25)  # 1 - (1 + 2) / (2 + 2)


@pytest.mark.slow
def test_a_trained_head_aligns_made_up_languages(tmp_path: Path):
    from bench.alignment import measure

    import seq2see

    pairs, _ = generated(3000, seed=1)
    (tmp_path / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    settings = {"training": {"alignment_weight": 0.05, "max_steps": 400, "validate_every": 200}}
    run = seq2see.train(tmp_path / "pairs.tsv", tmp_path / "run", settings=settings, tune=0)
    assert run.alignment_method.guided
    unseen, links = generated(200, seed=7)
    found = measure(run.folder, unseen, [(each, each) for each in links])
    assert found["words"] >= 95
