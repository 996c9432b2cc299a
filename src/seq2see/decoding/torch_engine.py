"""The PyTorch engine: searches with the trained model (`search.py`; on a GPU, by CUDA graphs where `recorded.py` can).

On a CPU each step of a search multiplies few rows, so weights are transposed, or quantized to int8.
"""

import contextlib
import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from seq2see import special
from seq2see.config import Decoding
from seq2see.decoding import search
from seq2see.decoding.continuous import SlotSearch
from seq2see.decoding.hypothesis import Hypothesis, Task
from seq2see.decoding.recorded import RecordedSearch
from seq2see.decoding.search import Choose, SearchStep, Watch
from seq2see.decoding.translator import batches
from seq2see.errors import SettingError, nearest
from seq2see.kernels import threads
from seq2see.model.interface import Seq2Seq

PRECISIONS = ("float32", "int8", "bfloat16")
SCORED_AT_ONCE = 4096
"""Number of source and target tokens up to which pairs share a batch when `score` evaluates given targets."""
LEAST_CONSTRAINED = 10
"""Minimum beam width of a search with constraints; a narrower beam is widened, because it is divided among groups of
hypotheses (banks) by the number of constraint tokens that they contain.
"""
SMALLEST = 1e-12
"""Lower bound of the divisor (the largest absolute value of a row) when a row is quantized to int8: it is never 0."""


class TorchEngine:
    """The PyTorch engine: beam search, or sampling if `choose` is given (`search.sampling(...)`).

    Args:
        watch: callback for each step of a search; with it, or with `choose`, no CUDA graphs are used.
    """

    def __init__(
        self,
        model: Seq2Seq,
        choose: Choose | None = None,
        precision: str = "float32",
        watch: Watch | None = None,
    ) -> None:
        self.model = for_decoding(model, precision)
        self.choose = choose
        self.watch = watch
        self.name = f"torch {precision}"
        self._recorded = RecordedSearch(self.model) if next(self.model.parameters()).is_cuda else None

    def slot_search(self, settings: Decoding, on_cpu: bool = False) -> SlotSearch | None:
        """Return a search that sentences can enter at any time; None if its steps cannot be CUDA graphs (`_recorder`).

        Args:
            on_cpu: whether to return such a search on a CPU, too, if the model supports it; its steps are then executed
                one by one.
        """
        if on_cpu and self._recorded is None and self.model.fixed_state(torch.zeros(1, dtype=torch.int64), 1, 1, 1):
            return SlotSearch(RecordedSearch(self.model), settings, self.name)
        recorded = self._recorder(settings)
        return None if recorded is None else SlotSearch(recorded, settings, self.name)

    def _recorder(self, settings: Decoding) -> RecordedSearch | None:
        """Return the search that uses CUDA graphs; None on a CPU, if `RecordedSearch.can` is false, or if `choose`,
        `watch` or hooks of the model are set.
        """
        recorded = None if self.choose or self.watch else self._recorded
        return recorded if recorded and recorded.can(settings.beam) and not has_hooks(self.model) else None

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        if not any(task.constraints for task in tasks):
            return self._search_all(tasks, settings)
        free = [place for place, task in enumerate(tasks) if not task.constraints]
        bound = [place for place, task in enumerate(tasks) if task.constraints]
        wide = replace(settings, beam=max(settings.beam, LEAST_CONSTRAINED))
        found = dict(zip(free, self._search_all([tasks[place] for place in free], settings), strict=True))
        answers = self._search_in_batches([tasks[place] for place in bound], wide)
        found |= dict(zip(bound, answers, strict=True))
        return [found[place] for place in range(len(tasks))]

    def _search_all(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Search for tasks without constraints, by CUDA graphs if these are supported and GPU memory suffices."""
        if recorded := self._recorder(settings):
            try:
                return recorded.search(tasks, settings)
            except torch.OutOfMemoryError:
                recorded.forget()
                warnings.warn(
                    "not enough GPU memory to decode with CUDA graphs: decoding without them, which is slower",
                    stacklevel=2,
                )
            torch.cuda.empty_cache()
        return self._search_in_batches(tasks, settings)

    def _search_in_batches(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        """Search without CUDA graphs, in batches of similar length; either all tasks have constraints or none has."""
        found: list[list[Hypothesis]] = [[] for _ in tasks]
        budget = settings.batch_tokens // settings.beam
        one_thread = torch.get_num_threads() == 1  # then there is nothing to share
        with contextlib.nullcontext() if one_thread else threads.sharing("search") as ours:
            for batch in batches([len(task.source) for task in tasks], budget):
                hypotheses = self._search([tasks[index] for index in batch], settings, self._watch_of(batch))
                for index, each in zip(batch, hypotheses, strict=True):
                    found[index] = each
                if ours is not None:
                    ours.after(sum(len(each[0].tokens) + 1 for each in hypotheses if each), is_last=True)
        return found

    def _watch_of(self, batch: list[int]) -> Watch | None:
        """Return `watch` adapted to a batch: the indices of sentences are converted to those among all tasks."""
        if (watch := self.watch) is None:
            return None

        def counted(step: SearchStep) -> set[int] | None:
            gone = watch(step._replace(sentences=[batch[place] for place in step.sentences]))
            return {place for place, index in enumerate(batch) if index in gone} if gone else None

        return counted

    @property
    def constrains(self) -> bool:
        """Return whether `search` supports `Task.constraints`: beam search does, sampling does not."""
        return self.choose is None

    @torch.inference_mode()
    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the log-probability of each token of given targets; see `Engine.score`."""
        found: list[list[float]] = [[] for _ in targets]
        sizes = [len(source) + len(target) for source, target in zip(sources, targets, strict=True)]
        for batch in batches(sizes, SCORED_AT_ONCE):
            source_N, source_offsets = self._packed([sources[index] for index in batch])
            ended = [[*targets[index], special.END] for index in batch]
            wanted_N, offsets = self._packed(ended)
            input_N, _ = self._packed([[special.BEGIN, *target[:-1]] for target in ended])
            memory = self.model.encode(source_N, source_offsets)
            logs_NV = search.log_probabilities(self.model.output(self.model.decode(input_N, offsets, memory)))
            logs_N = logs_NV.gather(1, wanted_N[:, None])[:, 0].tolist()
            for place, index in enumerate(batch):
                found[index] = logs_N[offsets[place] : offsets[place + 1]]
        return found

    def _packed(self, sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return sequences packed end to end on the device of the model, and their offsets."""
        device = next(self.model.parameters()).device
        tokens_N = torch.tensor([token for each in sequences for token in each], device=device)
        return tokens_N, torch.tensor([0, *map(len, sequences)]).cumsum(0)

    @torch.inference_mode()
    def _search(self, tasks: list[Task], settings: Decoding, watch: Watch | None) -> list[list[Hypothesis]]:
        memory = self.model.encode(*self._packed([task.source for task in tasks]))
        limits, prefixes = [task.limit for task in tasks], [task.prefix for task in tasks]
        penalty, width = search.penalty_of(settings), 1 if self.choose is not None else settings.beam
        stop = settings.stop_against
        constraints = [task.constraints for task in tasks] if tasks[0].constraints else ()
        return search.beam(self.model, memory, limits, width, penalty, prefixes, watch, stop, self.choose, constraints)


def for_decoding(model: Seq2Seq, precision: str = "float32") -> Seq2Seq:
    """Return the model that an engine runs: on a CPU a copy that decodes faster, on a GPU the model itself or, in
    bfloat16, a copy.

    A copy is not affected by later changes of the model, and has no hooks. On a CPU, float32 means the same numbers,
    with the matrix of each linear layer stored by columns, which the CPU's library multiplies with a few dozen rows
    more than twice as fast (docs/log.md); int8 means that each linear layer becomes an `Int8Linear`. In float32, a
    model that has hooks is returned itself, so that they are called.
    """
    if precision not in PRECISIONS:
        raise SettingError(f"--precision {precision}: unknown. {nearest(precision, PRECISIONS)}")
    if next(model.parameters()).device.type != "cpu":
        if precision == "int8":
            raise SettingError("--precision int8: the torch engine supports it on a CPU only. Leave it out")
        return _copy_without_hooks(model).to(torch.bfloat16) if precision == "bfloat16" else model
    if precision == "bfloat16":
        raise SettingError(
            "--precision bfloat16: the torch engine supports it on a GPU only. Leave it out, or use int8"
        )
    if precision == "float32" and has_hooks(model):
        return model
    laid_out = _copy_without_hooks(model)
    for parent in list(laid_out.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.Linear) and precision == "int8":
                setattr(parent, name, Int8Linear(child))
            elif isinstance(child, nn.Linear):  # a tied embedding keeps its own parameter, by rows
                child.weight = nn.Parameter(child.weight.detach().t().contiguous().t(), requires_grad=False)
    return laid_out


def _copy_without_hooks(model: Seq2Seq) -> Seq2Seq:
    copied = copy.deepcopy(model)
    for module in copied.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    return copied


def has_hooks(model: nn.Module) -> bool:
    """Return whether any module of a model has forward hooks, by which activations are recorded or changed."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class Int8Linear(nn.Module):
    """A linear layer in 8-bit integers, with a scale for each row of the weights and for each row of the input.

    Sums of integers are exact, and no row's scale depends on another's: a sentence gets the same translation in any
    batch. PyTorch's public int8 layers use one scale for a whole batch, and are to be removed; so this calls
    `torch._int_mm`, which its quantization library is built on.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight_FD = linear.weight.detach()
        largest_F = weight_FD.abs().amax(1).clamp_min(SMALLEST)
        self.whole_DF: Tensor
        self.scale_F: Tensor
        self.register_buffer("whole_DF", (weight_FD / largest_F[:, None]).mul_(127).round_().to(torch.int8).t())
        self.register_buffer("scale_F", largest_F / 127**2)
        self.bias = linear.bias

    def forward(self, x: Tensor, rows: slice | None = None) -> Tensor:
        """Compute all outputs, or only those of the given rows of the weights, as `Projection` does."""
        x_RD = x if x.dim() == 2 else x.flatten(0, -2)
        whole_DF, scale_F, bias_F = self.whole_DF, self.scale_F, self.bias
        if rows is not None:
            whole_DF, scale_F = whole_DF[:, rows], scale_F[rows]
            bias_F = bias_F[rows]  # type: ignore[assignment]
        # Few operations: each takes longer to call than its numbers take to compute.
        largest_R1 = torch.linalg.vector_norm(x_RD, math.inf, 1, True).clamp_min_(SMALLEST)
        whole_RD = x_RD.div(largest_R1).mul_(127).round_().to(torch.int8)
        y_RF = torch._int_mm(whole_RD, whole_DF).float().mul_(largest_R1)
        y_RF = y_RF.mul_(scale_F) if bias_F is None else torch.addcmul(bias_F, y_RF, scale_F)
        return y_RF if x.dim() == 2 else y_RF.view(*x.shape[:-1], -1)
