"""Forward and backward passes as CUDA graphs, captured once for each shape and replayed, so that the GPU does not wait
for kernel launches.

A captured pass has fixed shapes and addresses. Each batch is copied into one of a few shapes, slightly larger than the
batch; the remaining rows become sentences of padding, which the loss ignores.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seq2see import special
from seq2see.config import Model, Training
from seq2see.kernels import loading
from seq2see.model.attention import MultiHeadAttention
from seq2see.model.build import linear_parameters, without_weights
from seq2see.model.interface import Seq2Seq
from seq2see.model.layers import Dropout
from seq2see.model.packing import Packing
from seq2see.tokens.batches import Batch, twice_over
from seq2see.training.loss import teacher_forced

FEWEST_ROWS = 256
"""The number of rows (tokens) of each side of a captured batch is a multiple of this or, in large batches, of a larger
power of two. Computing so few rows takes no longer than launching the kernels: padding them costs nothing, and fewer
shapes are captured.
"""
SHORTEST_BOUND = 32
"""Smallest bound of the length of sentences in a captured batch. The attention kernels process up to 32 rows of a
sentence at once (`packed_attention.SHORTEST_BLOCK`): a lower bound would save no time, only cause more captures.
"""


@dataclass(frozen=True)
class Shape:
    """The sizes of the tensors of a pass that is captured in a CUDA graph; rows are tokens, end to end."""

    source_rows: int
    longest_source: int
    target_rows: int
    longest_target: int
    sentences: int

    @staticmethod
    def of(batch: Batch) -> "Shape":
        """Return the shape for a batch: its sizes, rounded up so that many batches share a shape but few rows are
        padding.
        """
        rows, longest, sentences = [], [], 1
        for offsets in (batch.source_offsets.numpy(), batch.target_offsets.numpy()):
            count = int(offsets[-1])
            step = max(FEWEST_ROWS, (1 << count.bit_length()) >> 5)  # a sixteenth to a thirty-second of a large batch
            rows.append(-(-count // step) * step)
            longest.append(_power_of_two(max(SHORTEST_BOUND, int(np.diff(offsets).max()))))
            sentences = max(sentences, len(batch) + -(-(rows[-1] - count) // longest[-1]))
        return Shape(rows[0], longest[0], rows[1], longest[1], _power_of_two(sentences))


MOST = 64
"""Maximum number of batch shapes for which CUDA graphs are captured, since each takes GPU memory; other shapes run
without a graph.
"""


class GraphedPasses:
    """Runs forward and backward passes over micro-batches by CUDA graphs; gradients are added to those of the weights.

    A graph is captured when a shape occurs for the second time: it is not worth it for a shape that occurs once, such
    as that of the small last batch of a window (`Batches`). Other passes are run by `plain`.
    """

    def __init__(
        self, model: Seq2Seq, settings: Training, bfloat16: bool, plain: Callable[[Batch, int], Tensor]
    ) -> None:
        self._model, self._settings, self._bfloat16, self._plain = model, settings, bfloat16, plain
        self._met: set[Shape] = set()
        self._compiled: set[tuple[int, int]] = set()
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._copies = WeightCopies(model) if bfloat16 else None
        device = self._weights[0].device
        for weight in self._weights:
            weight.grad = torch.zeros_like(weight)
        self._tokens = torch.ones((), device=device)
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)
        self._graphs: dict[Shape, tuple[Tensor, torch.cuda.CUDAGraph]] = {}
        self._memory = torch.cuda.graph_pool_handle()
        self._aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    @staticmethod
    def can(model: Seq2Seq, bfloat16: bool) -> bool:
        """Return whether the model is on a GPU, and all its attention has a kernel for packed rows (fixed shapes need
        it).
        """
        one = next(model.parameters())
        attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
        with torch.autocast("cuda", torch.bfloat16, enabled=bfloat16):
            return one.is_cuda and bool(attentions) and all(each.has_kernel(one) for each in attentions)

    def __call__(self, micro_batch: Batch, tokens: int) -> Tensor:
        """Run a forward and backward pass of the loss divided by `tokens`; return the three sums of `Loss`."""
        shape = Shape.of(micro_batch)
        if shape not in self._graphs:
            if shape not in self._met or len(self._graphs) == MOST:
                self._met.add(shape)
                return self._plain(micro_batch, tokens)
            self._graphs[shape] = self._capture(shape, micro_batch)
        numbers, graph = self._graphs[shape]
        numbers.copy_(torch.from_numpy(laid_out(micro_batch, shape)).pin_memory(), non_blocking=True)
        self._tokens.fill_(tokens)
        graph.replay()
        return self._sums

    def _capture(self, shape: Shape, example: Batch) -> tuple[Tensor, torch.cuda.CUDAGraph]:
        dice = torch.cuda.get_rng_state()  # capturing must not change what dropout draws next
        numbers = torch.from_numpy(laid_out(example, shape)).to(self._tokens.device)
        kernels = shape.longest_source, shape.longest_target  # what kernels are compiled for
        graph = torch.cuda.CUDAGraph()
        self._aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._aside):
            if kernels not in self._compiled:  # their first use compiles them and starts libraries: not to be captured
                torch.autograd.grad(self._loss(numbers, shape)[0], self._weights, allow_unused=True)
                self._compiled.add(kernels)
            # Not `with torch.cuda.graph`, which returns all cached memory to the driver before each capture.
            # A thread that compiles kernels meanwhile calls functions of CUDA that would end a "global" capture.
            torch.cuda.synchronize()
            graph.capture_begin(pool=self._memory, capture_error_mode="thread_local")
            try:
                self._add_gradients(numbers, shape)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._aside)
        torch.cuda.set_rng_state(dice)
        return numbers, graph

    def _add_gradients(self, numbers: Tensor, shape: Shape) -> None:
        """Add the gradients of a batch to those of the weights, in few kernels; store the sums of the loss."""
        copies = self._copies.of if self._copies is not None else {}
        with contextlib.nullcontext() if self._copies is None else self._copies.used():
            loss = self._loss(numbers, shape)
        used = [copies.get(weight, weight) for weight in self._weights]
        found = torch.autograd.grad(loss[0] / self._tokens, used, allow_unused=True)
        with torch.no_grad():
            learned = [
                (weight.grad, by)
                for weight, by in zip(self._weights, found, strict=True)
                if weight.grad is not None and by is not None  # a weight that this batch does not use
            ]
            for dtype in (torch.float32, torch.bfloat16):
                sums, parts = ([pair[side] for pair in learned if pair[1].dtype == dtype] for side in (0, 1))
                if dtype == torch.bfloat16 and parts:
                    parts, narrow = [torch.empty_like(each) for each in sums], parts
                    torch._foreach_copy_(parts, narrow)
                if parts:
                    torch._foreach_add_(sums, parts)
            self._sums.copy_(torch.stack([part.detach().double() for part in loss]))

    def _loss(self, numbers: Tensor, shape: Shape) -> tuple[Tensor, ...]:
        return _loss(self._model, numbers, shape, self._settings, self._bfloat16)


class WeightCopies:
    """Copies in bfloat16 of the weights of linear layers, for passes that are captured in CUDA graphs.

    Autocast casts each weight in a kernel of its own, and each gradient back in another, which take as long as the
    computation itself in small models. Here a few kernels cast all of them. The output layer is not included: its
    weights may be those of the embeddings.
    """

    def __init__(self, model: Seq2Seq) -> None:
        self._places: list[tuple[nn.Module, str, nn.Parameter]] = [
            (module, name, weight)
            for module in model.modules()
            if isinstance(module, nn.Linear) and module is not model.output
            for name, weight in module.named_parameters(recurse=False)
            if weight.requires_grad
        ]
        self.of: dict[Tensor, Tensor] = {
            weight: torch.empty_like(weight, dtype=torch.bfloat16).requires_grad_() for _, _, weight in self._places
        }
        """The copy of each weight."""

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Copy the weights; inside, the model computes with the copies."""
        with torch.no_grad():
            torch._foreach_copy_([*self.of.values()], [*self.of])
        for module, name, weight in self._places:
            module._parameters[name] = self.of[weight]  # type: ignore[assignment]
        try:
            yield
        finally:
            for module, name, weight in self._places:
                module._parameters[name] = weight


def are_expected(model: Model, training: Training) -> bool:
    """Return whether a training on a GPU uses CUDA graphs as far as its settings tell; `GraphedPasses.can` also tries
    the kernels.
    """
    width = model.d_key or model.d_model // model.heads
    has_kernel = loading.HAS_TRITON and width in loading.HEAD_WIDTHS and model.d_value in (0, width)
    return model.architecture == "transformer" and not training.deterministic and has_kernel


def extra_bytes(model: Model, weights: int, bfloat16: bool) -> int:
    """Return the bytes that CUDA graphs store besides weights, summed gradients, Adam's moments and activations.

    Each weight has a gradient of the micro-batch in float32. If `bfloat16`, each weight of `WeightCopies` also has a
    copy and the gradient of this copy, in 2 bytes each.
    """
    return 4 * weights + (4 * linear_parameters(model) if bfloat16 else 0)


_begun: list[threading.Thread] = []
"""Threads that `begin_compiling` has started and `compile_kernels` has not waited for yet."""


def begin_compiling(make: Callable[[], Seq2Seq], settings: Training, bfloat16: bool) -> None:
    """Start a thread that compiles the GPU kernels of a model, so that the caller can tokenise the corpus meanwhile.

    `compile_kernels`, which does the same work, first waits for this thread. The thread's model, from `make`, has
    uninitialised weights, so that no random numbers are drawn.
    """
    device = torch.cuda.current_device()  # each thread has its own

    def work() -> None:
        try:
            torch.cuda.set_device(device)
            with without_weights():
                model = make()
            _compile_kernels(model.to_empty(device=f"cuda:{device}"), settings, bfloat16)
        except Exception as problem:  # `compile_kernels` does the same again, and raises it
            loading.warn_unless_ending(problem)

    thread = threading.Thread(target=work, name="kernels")
    thread.start()
    _begun.append(thread)


def compile_kernels(model: Seq2Seq, settings: Training, bfloat16: bool) -> None:
    """Compile the training kernels for sentences of up to 32 and up to 64 tokens in parallel, and wait for them.

    The kernels of validation, which has no dropout and computes in float32, are then compiled in the background.
    Nothing is compiled if the model cannot use CUDA graphs (`GraphedPasses.can`).
    """
    while _begun:
        _begun.pop().join()
    _compile_kernels(model, settings, bfloat16)


def _compile_kernels(model: Seq2Seq, settings: Training, bfloat16: bool) -> None:
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    was_training = model.training
    given = []
    for length in (SHORTEST_BOUND, 2 * SHORTEST_BOUND):
        tokens_N, offsets = torch.full((length,), special.END), torch.tensor([0, length])
        batch = Batch(tokens_N, offsets, tokens_N, offsets)
        given.append((torch.from_numpy(laid_out(batch, Shape.of(batch))).to(weights[0].device), Shape.of(batch)))
    with loading.compiled_ahead():
        if GraphedPasses.can(model, bfloat16):  # as far as is known before the kernels are tried
            model.train()
            for module in model.modules():
                if isinstance(module, Dropout):  # it draws random numbers; our kernels have a dropout of their own
                    module.eval()
            for numbers, shape in given:
                torch.autograd.grad(_loss(model, numbers, shape, settings, bfloat16)[0], weights, allow_unused=True)
    if GraphedPasses.can(model, bfloat16):
        with loading.compiled_ahead(wait=False), torch.no_grad():
            model.eval()
            for numbers, shape in given if GraphedPasses.can(model, False) else []:
                plain = replace(settings, label_smoothing=0.0, agreement=0.0, alignment_weight=0.0)
                _loss(model, numbers, shape, plain, bfloat16=False)
    model.train(was_training)


def _loss(model: Seq2Seq, numbers: Tensor, shape: Shape, settings: Training, bfloat16: bool) -> tuple[Tensor, ...]:
    parts = torch.split(numbers, sizes(shape))
    source_N, source_places_N, source_offsets, inputs_N, places_N, offsets, labels_N, links_N = parts
    if settings.agreement:  # both halves with rows to spare of their own
        source_N, source_places_N, inputs_N, places_N, labels_N, links_N = (
            rows.repeat(2) for rows in (source_N, source_places_N, inputs_N, places_N, labels_N, links_N)
        )
        source_offsets, offsets = twice_over(source_offsets), twice_over(offsets)
    # As plain passes have them, so that the same kernels serve both: compiling them takes most of the first minute.
    sources = Packing.fixed(source_offsets.to(torch.int32), source_places_N, shape.longest_source)
    targets = Packing.fixed(offsets.to(torch.int32), places_N, shape.longest_target)
    with torch.autocast("cuda", torch.bfloat16, enabled=bfloat16):
        weights = settings.label_smoothing, settings.agreement, links_N, settings.alignment_weight
        return teacher_forced(model, source_N, sources, inputs_N, targets, labels_N, *weights)


def sizes(shape: Shape) -> list[int]:
    source, _, target, _, sentences = astuple(shape)
    return [source, source, sentences + 1, target, target, sentences + 1, target, target]


def laid_out(batch: Batch, shape: Shape) -> NDArray[np.int64]:
    """Return the numbers of a batch, padded to `shape`, in one array, so that one copy moves them to the GPU.

    The order is source tokens, their positions and offsets, decoder inputs, their positions and offsets, labels, and
    links; `sizes` returns the length of each.
    """
    source, source_places, source_offsets = _side(
        batch.source_N, batch.source_offsets, shape.source_rows, shape.longest_source, shape.sentences
    )
    side = batch.target_offsets, shape.target_rows, shape.longest_target, shape.sentences
    inputs, places, offsets = _side(batch.inputs_N, *side)
    labels, *_ = _side(batch.target_N, *side)
    links = np.full(shape.target_rows, -1)
    if batch.links_N is not None:
        links[: len(batch.links_N)] = batch.links_N.numpy()
    return np.concatenate([source, source_places, source_offsets, inputs, places, offsets, labels, links])


def _side(
    tokens_N: Tensor, offsets: Tensor, rows: int, longest: int, sentences: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return tokens, positions and offsets of a side with `rows` rows and `sentences` sentences.

    Unused rows become sentences of at most `longest` padding tokens; unused sentences are empty.
    """
    spare = np.minimum(np.arange(len(tokens_N), rows + longest, longest), rows)[1:]
    ends = np.concatenate([offsets.numpy(), spare])
    ends = np.pad(ends, (0, sentences + 1 - len(ends)), constant_values=rows)
    places = np.arange(rows) - np.repeat(ends[:-1], np.diff(ends))
    return np.pad(tokens_N.numpy(), (0, rows - len(tokens_N)), constant_values=special.PAD), places, ends


def _power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()
