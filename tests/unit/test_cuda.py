"""Training, resuming and translating on a GPU; skipped where there is none."""

import os
import random
import signal
from pathlib import Path

import pytest
import torch

import seq2see
from seq2see.config import Model, Training
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.kernels import loading
from seq2see.model import layers
from seq2see.model.attention import MultiHeadAttention, scaled_dot_product_attention
from seq2see.model.build import build
from seq2see.training import checkpoint, events, loss
from seq2see.training.events import Trained
from seq2see.training.graphs import GraphedPasses, begin_compiling, compile_kernels

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA, and this machine has none"),
]
SETTINGS = {
    "model": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "heads": 2, "d_ff": 64},
    "training": {"max_steps": 40, "warmup_steps": 10, "batch_tokens": 500, "validate_every": 20, "average": 2},
}


def pairs(folder: Path) -> Path:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{number}\t{str(number)[::-1]}\n" for number in range(100, 700)))
    return path


def test_a_run_trains_in_bfloat16_and_goes_on(tmp_path: Path) -> None:
    run = seq2see.train(pairs(tmp_path), tmp_path / "run", settings=SETTINGS)
    assert next(run.bundle.model.parameters()).is_cuda
    longer = {"training": {"max_steps": 60}}
    seq2see.train(pairs(tmp_path), tmp_path / "run", settings=longer, resume=True)
    newest = checkpoint.newest(tmp_path / "run" / "checkpoints")
    assert newest is not None
    assert newest.name == "step-00000060"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_deterministic_settings_make_a_resume_exact_to_the_bit(tmp_path: Path, precision: str) -> None:
    """Stopped in the middle of an epoch and of an accumulation, by the clock of the test, and resumed."""
    model = {**SETTINGS["model"], "dropout": 0.1}
    training = {**SETTINGS["training"], "deterministic": True, "precision": precision, "micro_batch_tokens": 200}
    settings = {"model": model, "training": {**training, "log_every": 1, "metric": "loss"}}
    seq2see.train(pairs(tmp_path), tmp_path / "whole", settings=settings)
    for step in (7, 20, 33):

        def stop(event: object, step: int = step) -> None:
            if isinstance(event, Trained) and event.step == step:
                os.kill(os.getpid(), signal.SIGTERM)

        with pytest.raises(KeyboardInterrupt):
            seq2see.train(pairs(tmp_path), tmp_path / "parts", settings=settings, resume=True, watch=stop)
    seq2see.train(pairs(tmp_path), tmp_path / "parts", settings=settings, resume=True)
    names = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.safetensors")]
    assert len(names) == 5
    for name in names:
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("preset", ["rnn", "rnn-attention", "rnn-dot", "rnn-general"])
def test_an_rnn_learns_in_bfloat16_what_it_learns_in_float32(tmp_path: Path, preset: str, cell: str) -> None:
    """The RNN itself stays in float32, and the output on a GPU is that on a CPU."""
    found: dict[str, list[float]] = {}
    model = {"d_model": 32, "d_hidden": 48, "dropout": 0.0, "cell": cell}
    for precision in ("float32", "bfloat16"):
        losses: list[float] = []
        run = seq2see.train(
            pairs(tmp_path),
            tmp_path / precision,
            preset=preset,
            settings={"model": model, "training": SETTINGS["training"] | {"precision": precision, "log_every": 1}},
            watch=lambda event, losses=losses: losses.append(event.loss) if isinstance(event, Trained) else None,
        )
        found[precision] = losses
    assert found["bfloat16"] == pytest.approx(found["float32"], rel=0.05)
    lines = [str(number) for number in range(100, 400)]
    on_gpu = run.search(lines, beam=3, engine=run.engine("torch"))
    on_cpu = run.search(lines, beam=3, engine=TorchEngine(run.bundle.model.cpu()))
    same = sum(one.text == other.text for one, other in zip(on_gpu, on_cpu, strict=True))
    assert same >= 0.97 * len(lines)


def test_gpu_memory_that_runs_out(tmp_path: Path) -> None:
    """Where a forward pass does not fit into GPU memory, micro-batches shrink and the losses stay the same."""
    found: dict[float, list[float]] = {}
    shrunk: list[events.Shrunk] = []
    model = {**SETTINGS["model"], "d_model": 512, "d_ff": 2048, "encoder_layers": 4, "dropout": 0.0}
    training = {**SETTINGS["training"], "batch_tokens": 60_000, "max_steps": 4, "precision": "float32", "log_every": 1}
    path = tmp_path / "long.tsv"
    dice = random.Random(1)
    texts = ["".join(dice.choices("abcd", k=100)) for _ in range(600)]
    path.write_text("".join(f"{text}\t{text[::-1]}\n" for text in texts))
    for share in (1.0, 0.03):
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(share)
        losses: list[float] = []

        def watch(event: object, losses: list[float] = losses) -> None:
            if isinstance(event, Trained):
                losses.append(event.loss)
            if isinstance(event, events.Shrunk):
                shrunk.append(event)

        seq2see.train(path, tmp_path / str(share), settings={"model": model, "training": training}, watch=watch)
        found[share] = losses
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert shrunk
    assert found[0.03] == pytest.approx(found[1.0], rel=1e-3)


def test_a_gpu_translates_as_a_cpu_does(tmp_path: Path) -> None:
    """Float32 on both, sums in another order: nearly all sentences are equal to the token."""
    run = seq2see.train(pairs(tmp_path), tmp_path / "run", settings=SETTINGS)
    lines = [str(number) for number in range(100, 400)]
    on_gpu = run.search(lines, beam=3, engine=run.engine("torch"))
    on_cpu = run.search(lines, beam=3, engine=TorchEngine(run.bundle.model.cpu()))
    same = sum(one.text == other.text for one, other in zip(on_gpu, on_cpu, strict=True))
    assert same >= 0.97 * len(lines)


def long_pairs(folder: Path) -> Path:
    """Of several lengths, some above 128: their batches have several shapes, and the table of waves must grow."""
    dice = random.Random(1)
    path = folder / "long.tsv"
    texts = ["".join(dice.choices("abcd", k=length)) for length in (5, 12, 40, 150) for _ in range(60)]
    path.write_text("".join(f"{text}\t{text[::-1]}\n" for text in texts))
    return path


def losses(folder: Path, monkeypatch: pytest.MonkeyPatch, graphed: bool, **settings: object) -> list[Trained]:
    """Of 40 updates in float32, those with the paper's model unless told otherwise."""
    if not graphed:
        monkeypatch.setattr(GraphedPasses, "can", staticmethod(lambda *_: False))
    found: list[Trained] = []
    own = {key: settings.pop(key) for key in ("agreement", "micro_batch_tokens", "precision") if key in settings}
    seq2see.train(
        long_pairs(folder),
        folder / f"run-{graphed}-{len(own)}",
        settings={
            "data": {"source_tokenizer": "characters", "target_tokenizer": "characters"},
            "model": {**SETTINGS["model"], "norm": "post", "positions": "sinusoid", "dropout": 0.0, **settings},
            "training": SETTINGS["training"]
            | {"batch_tokens": 2000, "precision": "float32", "log_every": 1, "alignment_weight": 0.1}
            | own,
        },
        watch=lambda event: found.append(event) if isinstance(event, Trained) else None,
    )
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"positions": "rotary", "norm": "pre"},
        {"positions": "learned", "d_model": 48},
        {"micro_batch_tokens": 700},
        {"micro_batch_tokens": 700, "precision": "bfloat16", "positions": "rotary", "norm": "pre", "tie": "none"},
        {"precision": "bfloat16"},
    ],
)
def test_graphed_passes_learn_what_plain_ones_learn(tmp_path, monkeypatch, settings) -> None:
    graphed = losses(tmp_path, monkeypatch, True, **settings)
    plain = losses(tmp_path, monkeypatch, False, **settings)
    assert len(plain) == 40
    exact = 1e-2 if "precision" in settings else 2e-3
    assert [event.loss for event in graphed] == pytest.approx([event.loss for event in plain], rel=exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("rows", "width", "columns"), [(1, 16, 8), (37, 24, 130), (5000, 64, 2048)])
def test_a_linear_layer_has_the_gradients_of_pytorch(rows, width, columns, relu, dtype) -> None:
    torch.manual_seed(1)
    shapes = (rows, width), (columns, width), (columns,)
    given = [torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for shape in shapes]
    found = loading.linear().linear(*given, relu)
    expected = torch.nn.functional.linear(*(each.double() for each in given))
    expected = expected.relu() if relu else expected
    by = torch.randn_like(expected)
    exact = 1e-5 if dtype == torch.float32 else 2e-2
    pairs = [(found, expected)]
    pairs += zip(torch.autograd.grad(found, given, by.to(dtype)), torch.autograd.grad(expected, given, by), strict=True)
    for one, other in pairs:
        assert one.dtype == dtype
        difference = (one.double() - other.double()).norm() / other.double().norm()
        assert float(difference.detach()) < exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "heads", "width"), [(1, 1, 8), (37, 3, 24), (1000, 4, 64)])
def test_rotated_columns_are_those_of_the_written_out_rotation(rows, heads, width, dtype) -> None:
    torch.manual_seed(1)
    x = torch.randn(rows, 3 * heads * width, device="cuda", dtype=dtype, requires_grad=True)
    places = torch.randint(90, (rows,), device="cuda")
    found = layers.rotate_columns(x, places, 90, width, 2 * heads * width)
    turning, values = x.split((2 * heads * width, heads * width), -1)
    turned = layers.rotate_rows(turning.unflatten(-1, (-1, width)), places, 90).flatten(1)
    expected = torch.cat([turned, values], -1)
    by = torch.randn_like(expected)
    close = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 2e-2, "rtol": 2e-2}
    torch.testing.assert_close(found, expected, **close)
    torch.testing.assert_close(torch.autograd.grad(found, x, by), torch.autograd.grad(expected, x, by), **close)


def test_an_agreement_is_captured_too(tmp_path, monkeypatch) -> None:
    without = losses(tmp_path, monkeypatch, True, dropout=0.5)
    agreeing = losses(tmp_path, monkeypatch, True, dropout=0.5, agreement=5.0)
    assert agreeing[-1].smoothed_loss > without[-1].smoothed_loss  # the part that two dropouts disagree in


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [8, 24, 64, 128])
@pytest.mark.parametrize(
    ("queries", "keys", "causal"),
    [
        ([3, 67, 1, 129], None, False),
        ([3, 67, 1, 129], None, True),
        ([9, 40, 0, 5], [70, 3, 6, 0], False),
    ],
)
def test_packed_attention_is_each_sentence_alone(queries, keys, causal, width, dtype) -> None:
    torch.manual_seed(1)
    heads = 2
    rows = torch.randn(sum(queries), heads * width * (1 if keys else 3), device="cuda", dtype=dtype, requires_grad=True)
    given, parts = [rows], list(rows.chunk(1 if keys else 3, -1))
    if keys:
        given.append(torch.randn(sum(keys), 2 * heads * width, device="cuda", dtype=dtype, requires_grad=True))
        parts += given[1].chunk(2, -1)
    offsets = [torch.tensor([0, *lengths], device="cuda").cumsum(0) for lengths in (queries, keys or queries)]
    memory = given[1] if keys else None
    found = loading.packed_attention().packed_attention(
        rows, memory, *offsets, heads, max(queries), max(keys or queries), causal
    )
    alone = []
    lengths = (queries, keys or queries, keys or queries)
    cut = [part.split(each) for part, each in zip(parts, lengths, strict=True)]
    for side in zip(*cut, strict=True):
        query, key, value = (part.float().unflatten(-1, (heads, width)).transpose(0, 1) for part in side)
        keep = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool, device="cuda")
        alone.append(scaled_dot_product_attention(query, key, value, keep.tril() if causal else keep)[0])
    expected = torch.cat([each.transpose(0, 1).flatten(1) for each in alone])
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 5e-2}
    torch.testing.assert_close(found.float(), expected, **close)
    for one, other in zip(
        torch.autograd.grad(found.float().square().sum(), given),
        torch.autograd.grad(expected.square().sum(), given),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=5 * close["rtol"], atol=5 * close["atol"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (37, 24), (1000, 512)])
@pytest.mark.parametrize(("adds", "norms"), [(True, True), (True, False), (False, True)])
def test_norm_of_sum_is_what_its_parts_are(adds, norms, rows, columns, dtype) -> None:
    torch.manual_seed(1)
    x, added = (torch.randn(rows, columns, device="cuda", dtype=dtype, requires_grad=True) for _ in range(2))
    norm = torch.nn.LayerNorm(columns, device="cuda")
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    found = loading.rows().norm_of_sum(x, added if adds else None, norm if norms else None, 0.0, dtype)
    total = x.float() + added.float() if adds else x.float()
    expected = norm(total) if norms else total
    inputs = [x, *[added] * adds, *[norm.weight, norm.bias] * norms]
    by = torch.randn_like(expected)
    gradients = torch.autograd.grad(found, inputs, by.to(found.dtype))
    exact = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found.float(), expected, atol=exact, rtol=exact)
    for one, other in zip(gradients, torch.autograd.grad(expected, inputs, by), strict=True):
        scale = float(other.abs().max())
        torch.testing.assert_close(one / scale, other / scale, atol=exact, rtol=exact, check_dtype=False)


def test_dropout_in_one_pass_drops_as_much_as_asked_and_the_same_on_the_way_back() -> None:
    x = torch.zeros(2000, 96, device="cuda", requires_grad=True)
    ones = torch.ones_like(x, requires_grad=True)
    found = loading.rows().norm_of_sum(x, ones, None, 0.3, torch.float32)
    again = loading.rows().norm_of_sum(x, ones, None, 0.3, torch.float32)
    by_x, by_ones = torch.autograd.grad(found.sum(), [x, ones])
    assert torch.equal(by_ones, found)
    assert (by_x == 1).all()
    kept = (found > 0).float()
    assert abs(float(kept.mean()) - 0.7) < 0.01
    assert float((kept.mean(0) - 0.7).abs().max()) < 0.06
    assert float((kept.mean(1) - 0.7).abs().max()) < 0.3
    assert not torch.equal(found, again)


@pytest.mark.parametrize("agreement", [0.0, 1.7])
@pytest.mark.parametrize("words", [50, 37_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_scores_are_the_written_out_ones(words, agreement, dtype) -> None:
    torch.manual_seed(1)
    scores = [(3 * torch.randn(9, words)).to(dtype) for _ in range(2 if agreement else 1)]
    labels = torch.randint(words, (9, 1))
    there = [each.cuda() for each in scores]
    label_scores, label_logs, difference = loading.rows().to_gradients_(there, labels.cuda(), 0.9, agreement, True)
    expected = loss._to_gradients_(scores, labels, 0.1, agreement, True)
    exact = 1e-5 if dtype == torch.float32 else 1e-2
    for found, right in zip([*label_scores, *label_logs], [*expected[0], *expected[1]], strict=True):
        torch.testing.assert_close(found.cpu(), right, atol=1e-4, rtol=1e-5)
    if agreement:
        torch.testing.assert_close(difference.cpu(), expected[2], atol=1e-4, rtol=1e-4)
    for found, right in zip(there, scores, strict=True):
        torch.testing.assert_close(found.cpu(), right, atol=exact, rtol=exact)


def test_attention_without_gradients_is_tried_without_them_and_tried_again_with_them(monkeypatch) -> None:
    """The kernels of the backward pass in float32 take seconds to compile, and validation does not use them."""
    kernels, launched = loading.packed_attention(), []

    def launch(kernel, *given, **fixed) -> None:
        launched.append(kernel)
        loading.launch(kernel, *given, **fixed)

    monkeypatch.setattr(kernels, "launch", launch)
    attention = MultiHeadAttention(22, heads=2).cuda()  # a width that nothing else here has
    one = next(attention.parameters())
    with torch.inference_mode():
        assert attention.has_kernel(one)
    assert {id(kernel) for kernel in launched} == {id(kernels._forward)}
    assert attention.has_kernel(one)
    assert {id(kernels._backward_queries), id(kernels._backward_keys)} <= {id(kernel) for kernel in launched}


def test_compiling_in_a_thread_changes_no_random_numbers() -> None:
    settings = Model(encoder_layers=1, decoder_layers=1, d_model=48, heads=2, d_ff=64, dropout=0.3)
    training = Training(label_smoothing=0.1)
    model = build(settings, 50, 60).cuda()
    torch.cuda.manual_seed(3)
    before = torch.cuda.get_rng_state()
    begin_compiling(lambda: build(settings, 50, 60), training, bfloat16=True)
    drawn = torch.rand(5, device="cuda")  # by this thread, while the other one compiles
    compile_kernels(model, training, bfloat16=True)
    assert model.training
    torch.cuda.set_rng_state(before)
    assert torch.equal(torch.rand(5, device="cuda"), drawn)
    torch.cuda.set_rng_state(before)
    begin_compiling(lambda: build(settings, 50, 60), training, bfloat16=True)
    compile_kernels(model, training, bfloat16=True)
    assert torch.equal(torch.cuda.get_rng_state(), before)
    assert GraphedPasses.can(model, bfloat16=True)
