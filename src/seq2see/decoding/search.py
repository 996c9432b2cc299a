"""Search for the best outputs of a decoder: greedy, sampling and beam search (Vaswani et al., 2017, section 6.1).

All three are one search, which needs only `start(memory)` and `step(tokens, state)` and so serves every model. Its
hypotheses are kept in tensors (`Hypotheses`). `beam` executes the search step by step, and finished sentences leave the
batch; `recorded.py` executes the same steps in fixed shapes, on a GPU as CUDA graphs. B sentences hold W hypotheses
each in R = B x W rows.

Finished hypotheses are ranked by score(y) = log P(y | x) / penalty(length of y): see `penalty_of`. The length counts
all tokens that were scored, the end token included.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from seq2see import special
from seq2see.config import Decoding, StopAgainst
from seq2see.decoding.constraints import ConstrainedBeam
from seq2see.decoding.hypothesis import Constraint, Hypothesis
from seq2see.model.interface import Memory, Seq2Seq
from seq2see.model.state import State

BLOCK = 64
"""Number of consecutive scores whose maximum `top` computes first, on a CPU, to rule out most of the vocabulary."""
NEVER = (special.PAD, special.BEGIN)
"""Special tokens that the search never generates: their log-probability is set to -inf."""


class SearchStep(NamedTuple):
    """One step of a search: C candidates for each of B sentences, each of them a hypothesis and one more token.

    The most probable come first, except in a search with constraints (`constraints.Ranked`).
    """

    parents_BC: Tensor
    """For each candidate, the index from 0 to W - 1 of the hypothesis of its sentence that it continues."""
    tokens_BC: Tensor
    totals_BC: Tensor
    """Sum of the log-probabilities of each candidate's tokens, including the new one; -inf for an unused candidate."""
    done_BC: Tensor
    """Whether each candidate is a finished translation."""
    picked_BW: Tensor
    """For each sentence, the indices of the candidates that become its W hypotheses in the next step."""
    sentences: Sequence[int] = ()
    """Indices, among all sentences of the search, of the B sentences of this step; given to `Watch` callbacks only."""


LengthPenalty = Callable[[int], float]
Choose = Callable[[Tensor], Tensor]
"""Function that picks the next token of each of R hypotheses, given the log-probabilities RV of all V tokens."""
Best = Callable[[Tensor, int], tuple[Tensor, Tensor]]
"""Function that returns the log-probabilities and the ids of candidates for the next token of each hypothesis, given
the logits RV and the number of candidates.
"""
Watch = Callable[[SearchStep], Collection[int] | None]
"""Callback that receives each step of the search, and may return the indices of sentences whose search is abandoned."""


def power_penalty(alpha: float) -> LengthPenalty:
    """Return the function length^alpha: alpha = 1 ranks by the mean log-probability per token, 0 by the sum."""
    return lambda length: length**alpha


def paper_penalty(alpha: float) -> LengthPenalty:
    """Return the function ((5 + length) / 6)^alpha (Wu et al., 2016, equation 14), used by Vaswani et al. (2017)."""
    return lambda length: ((5 + length) / 6) ** alpha


def penalty_of(settings: Decoding) -> LengthPenalty:
    """Return the length penalty: the formula `settings.length_formula` with alpha = `settings.length_penalty`."""
    formula = paper_penalty if settings.length_formula == "paper" else power_penalty
    return formula(settings.length_penalty)


def sampling(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int | None = None) -> Choose:
    """Return a function that samples the next token of each hypothesis.

    Args:
        temperature: divides the log-probabilities.
        top_k: number of most probable tokens from which to sample; 0 for all.
        top_p: sample only from the fewest of the `top_k` tokens whose probabilities sum to at least `top_p`.
        seed: seed of the random numbers; without it, each function samples differently.
    """
    generators: dict[torch.device, torch.Generator] = {}

    def choose(log_probabilities_RV: Tensor) -> Tensor:
        scores_RV = log_probabilities_RV / temperature
        if top_k:
            least_R1 = scores_RV.topk(min(top_k, scores_RV.shape[-1])).values[:, -1:]
            scores_RV = scores_RV.masked_fill(scores_RV < least_R1, -torch.inf)
        if top_p < 1:
            sorted_RV, order_RV = scores_RV.softmax(-1).sort(descending=True)
            outside_RV = sorted_RV.cumsum(-1) - sorted_RV >= top_p  # the tokens before it already have top_p
            scores_RV = scores_RV.masked_fill(outside_RV.scatter(1, order_RV, outside_RV), -torch.inf)
        device = scores_RV.device
        if device not in generators:
            generators[device] = torch.Generator(device)
            if seed is None:
                generators[device].seed()
            else:
                generators[device].manual_seed(seed)
        return scores_RV.softmax(-1).multinomial(1, generator=generators[device])[:, 0]

    return choose


def greedy(log_probabilities_RV: Tensor) -> Tensor:
    """Return the most probable next token of each row."""
    return top(log_probabilities_RV, 1)[1][:, 0]


def top(scores_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest values of each row, largest first, and their indices: a `topk` that is fast on a CPU.

    The largest values are in the blocks whose maxima are largest: finding maxima is one fast pass, and few values are
    left to be sorted.
    """
    R, V = scores_RV.shape
    blocks = V // BLOCK
    if scores_RV.device.type != "cpu" or blocks <= 2 * count:
        return scores_RV.topk(count)
    even_RV, rest_RV = scores_RV[:, : blocks * BLOCK], scores_RV[:, blocks * BLOCK :]
    blocks_RC = even_RV.reshape(R, blocks, BLOCK).amax(-1).topk(count).indices
    places_RP = (blocks_RC[:, :, None] * BLOCK + torch.arange(BLOCK, device=scores_RV.device)).flatten(1)
    candidates_RP = torch.cat([even_RV.gather(1, places_RP), rest_RV], 1)
    values_RC, picked_RC = candidates_RP.topk(count)
    rest_places_RP = torch.arange(blocks * BLOCK, V, device=scores_RV.device).expand(R, -1)
    return values_RC, torch.cat([places_RP, rest_places_RP], 1).gather(1, picked_RC)


def log_probabilities(scores_RV: Tensor) -> Tensor:
    """Return RV: the log-probabilities of the next token, given its logits; -inf for the tokens of `NEVER`.

    Float32 logits are modified: those of the tokens of `NEVER` become -inf.
    """
    scores_RV = scores_RV.float()
    for token in NEVER:
        scores_RV[:, token] = -torch.inf
    return scores_RV.log_softmax(-1)


def best_tokens(scores_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities and ids of the `count` most probable tokens of each row, given its logits."""
    return top(log_probabilities(scores_RV), count)


def chosen_token(choose: Choose) -> Best:
    """Return a substitute for `best_tokens` that returns only the token that `choose` picks in each row."""

    def best(scores_RV: Tensor, _: int) -> tuple[Tensor, Tensor]:
        logs_RV = log_probabilities(scores_RV)
        tokens_R1 = choose(logs_RV)[:, None]
        return logs_RV.gather(1, tokens_R1), tokens_R1

    return best


class Hypotheses:
    """The W open hypotheses of each of B sentences, of at most T tokens, and its W best finished ones, in tensors.

    Sentences may be at different steps. Tokens are stored with pointers to parents (see `FinishedSentences`), so
    they are not moved when the hypotheses are reordered.
    """

    _OF_SENTENCES = (
        "step_B", "last_BW", "growing_B", "_limits_B", "_forced_BT", "_totals_BW", "_parents_BTW", "_tokens_BTW",
        "_scores_BW", "_ends_BW4", "_complete_B",
    )  # fmt: skip

    def __init__(
        self, B: int, W: int, T: int, penalty: LengthPenalty, stop_against: StopAgainst, device: torch.device
    ) -> None:
        whole = {"dtype": torch.int64, "device": device}
        self._width, self._room, self._count = W, T, 2 * W if W > 1 else 1
        penalties = [penalty(length) for length in range(1, T + 1)]
        self._penalty_T = torch.tensor(penalties, dtype=torch.float64, device=device)
        self._rank_to_beat = W - 1 if stop_against == "worst" else 0
        # The sum of a single hypothesis is exact, as it costs nothing.
        exact = torch.float64 if W == 1 else torch.float32
        self._first_W = torch.full((W,), -torch.inf, dtype=exact, device=device)
        self._first_W[0] = 0.0  # all W begin alike: only one of them counts
        self._among_C = torch.arange(self._count, device=device)
        self.step_B = torch.zeros(B, **whole)  # type: ignore[call-overload]
        """For each sentence, the index of its next step; of its last step when its search has ended."""
        self.last_BW = torch.zeros(B, W, **whole)  # type: ignore[call-overload]
        self.growing_B = torch.zeros(B, dtype=torch.bool, device=device)
        self.is_forced = False
        """Whether any sentence has a forced prefix."""
        self._limits_B = torch.zeros(B, **whole)  # type: ignore[call-overload]
        self._forced_BT = torch.full((B, T), -1, **whole)  # type: ignore[call-overload]
        self._totals_BW = torch.zeros(B, W, dtype=exact, device=device)
        # What was chosen at each step, and of the W best finished ones: total, step, parent, token.
        self._parents_BTW = torch.zeros(B, T, W, **whole)  # type: ignore[call-overload]
        self._tokens_BTW = torch.zeros(B, T, W, **whole)  # type: ignore[call-overload]
        self._scores_BW = torch.full((B, W), -torch.inf, dtype=torch.float64, device=device)
        self._ends_BW4 = torch.zeros(B, W, 4, dtype=torch.float64, device=device)
        self._complete_B = torch.zeros(B, **whole)  # type: ignore[call-overload]
        self._constrained: ConstrainedBeam | None = None
        self._enough = W
        """Number of finished hypotheses that a sentence needs before its search may stop below its length limit."""

    def begin(self, sentences: Tensor | slice, limits_b: Tensor) -> None:
        """Begin the search for the given sentences with their maximum output lengths in tokens; 0 for no search.

        It uses only operations that a CUDA graph can capture: `x[sentences] = 0` would copy the number from the CPU.
        """
        numbers = (
            (self.step_B, 0),
            (self.last_BW, special.BEGIN),
            (self._scores_BW, -torch.inf),
            (self._complete_B, 0),
        )
        rows = (
            (self.growing_B, limits_b > 0),
            (self._limits_B, limits_b),
            (self._totals_BW, self._first_W.expand(len(limits_b), -1)),
        )
        if isinstance(sentences, slice):
            for kept, number in numbers:
                kept[sentences].fill_(number)
            for kept, new in rows:
                kept[sentences].copy_(new)
        else:
            for kept, number in numbers:
                kept.index_fill_(0, sentences, number)
            for kept, new in rows:
                kept.index_copy_(0, sentences, new)

    def force(self, sentences: Sequence[int], prefixes: Sequence[Sequence[int]]) -> None:
        """Set the tokens with which the outputs of the given sentences must begin; an empty prefix forces nothing."""
        if not self.is_forced and not any(prefixes):
            return
        forced_bT = torch.full((len(sentences), self._room), -1)
        for row, prefix in enumerate(prefixes):
            given = torch.tensor(prefix[: self._room], dtype=torch.int64)
            forced_bT[row, : len(given)] = given
        device = self._forced_BT.device
        self._forced_BT[torch.tensor(sentences, device=device)] = forced_bT.to(device)
        self.is_forced = bool((self._forced_BT >= 0).any())

    def constrain(self, constraints: Sequence[Sequence[Constraint]]) -> None:
        """Set the constraints that the outputs of all sentences must meet; forced prefixes are then ignored.

        Only a part of the beam has met all constraints and may end. So W / 2 finished hypotheses are enough to stop,
        if the best of them is not beaten by the best open one.
        """
        self._constrained, self._rank_to_beat = ConstrainedBeam(constraints, self._width), 0
        self._enough = max(1, self._width // 2)

    def keep_sentences(self, sentences_B: Tensor) -> None:
        """Drop all sentences except the given ones."""
        for name in self._OF_SENTENCES:
            setattr(self, name, getattr(self, name).index_select(0, sentences_B))
        if self._constrained is not None:
            self._constrained.keep_sentences(sentences_B.tolist())

    def advance(self, model: Seq2Seq, state: State, best: Best = best_tokens) -> SearchStep:
        """Extend the hypotheses of every unfinished sentence by one token, and return the step.

        Args:
            best: function that returns the candidates for the next token; not used with constraints.
        """
        scores_RV = model.step(self.last_BW.flatten(), state)
        if self._constrained is not None:
            return self._proceed(self._rank_constrained(self._constrained, log_probabilities(scores_RV)), state)
        logs_RC, tokens_RC = best(scores_RV, min(self._count, scores_RV.shape[-1]))
        if self.is_forced:
            logs_RC, tokens_RC = self._with_forced(scores_RV, logs_RC, tokens_RC)
        if self._width == 1:
            return self._extend(logs_RC, tokens_RC)
        return self._proceed(self._rank(logs_RC, tokens_RC), state)

    def _proceed(self, step: SearchStep, state: State) -> SearchStep:
        """Store the candidates of a step that are finished translations, and continue with those that were picked."""
        if step.done_BC.is_cuda or step.done_BC.any():  # to ask a GPU would mean to wait for it
            self._finish(step)
        self._continue(step, state)
        return step

    def _with_forced(self, scores_RV: Tensor, logs_RC: Tensor, tokens_RC: Tensor) -> tuple[Tensor, Tensor]:
        """Make the next token of the forced prefix the only candidate of each row whose prefix has not ended."""
        given_R1 = self._forced_BT.gather(1, self.step_B[:, None]).repeat_interleave(self._width, 0)
        is_given_R1, given_R1 = given_R1 >= 0, given_R1.clamp_min(0)
        log_R1 = log_probabilities(scores_RV).gather(1, given_R1)
        is_first_C = self._among_C[: logs_RC.shape[1]] == 0
        logs_RC = torch.where(is_given_R1, torch.where(is_first_C, log_R1, -torch.inf), logs_RC)
        return logs_RC, torch.where(is_given_R1 & is_first_C, given_R1, tokens_RC)

    def _extend(self, logs_B1: Tensor, tokens_B1: Tensor) -> SearchStep:
        """Append a token to the only hypothesis of each sentence (beam width 1), unless the hypothesis is finished."""
        growing_B1, first_B1 = self.growing_B[:, None], torch.zeros_like(tokens_B1)
        totals_B1 = torch.where(growing_B1, self._totals_BW + logs_B1, self._totals_BW)
        self._totals_BW.copy_(totals_B1)
        self.last_BW.copy_(torch.where(growing_B1, tokens_B1, self.last_BW))
        self._tokens_BTW.scatter_(1, self.step_B[:, None, None], self.last_BW[:, None])
        done_B = (self.last_BW[:, 0] == special.END) | (self._limits_B == self.step_B + 1)
        self.growing_B &= ~done_B
        self.step_B += self.growing_B
        return SearchStep(first_B1, tokens_B1, totals_B1, done_B[:, None], first_B1)

    def _rank(self, logs_RC: Tensor, tokens_RC: Tensor) -> SearchStep:
        """Return the 2 W best continuations of each sentence, given the 2 W best tokens of each hypothesis.

        Of the first W, those with an end token are finished, and at the length limit all are. The W best without an
        end token stay open; there are always W, since each hypothesis has only one continuation with an end token.
        """
        B, W = self.last_BW.shape
        most = logs_RC.shape[1]
        totals_BC, flat_BC = (self._totals_BW.view(-1, 1) + logs_RC).view(B, -1).topk(self._count)
        parents_BC, tokens_BC = flat_BC // most, tokens_RC.view(B, -1).gather(1, flat_BC)
        ends_BC = tokens_BC == special.END
        at_limit_B1 = (self._limits_B == self.step_B + 1)[:, None]
        among_BC = (self._among_C < W) & self.growing_B[:, None]
        done_BC = (ends_BC | at_limit_B1) & (totals_BC > -torch.inf) & among_BC
        picked_BW = totals_BC.masked_fill(ends_BC, -torch.inf).topk(W).indices
        return SearchStep(parents_BC, tokens_BC, totals_BC, done_BC, picked_BW)

    def _rank_constrained(self, constrained: ConstrainedBeam, logs_RV: Tensor) -> SearchStep:
        """Return the step that `ConstrainedBeam.rank` chooses."""
        at_limit = (self._limits_B == self.step_B + 1).tolist()
        return SearchStep(*constrained.rank(logs_RV, self._totals_BW, at_limit, self._complete_B.tolist()))

    def _finish(self, step: SearchStep) -> None:
        """Keep, for each sentence, the W best of the hypotheses that finished in this step or earlier."""
        parents_BC, tokens_BC, totals_BC, done_BC, *_ = step
        scores_BC = totals_BC.double() / self._penalty_T[self.step_B][:, None]
        ends = totals_BC, self.step_B[:, None].expand_as(parents_BC), parents_BC, tokens_BC
        ends_BC4 = torch.stack([each.double() for each in ends], -1)
        scores_BF = torch.cat([self._scores_BW, scores_BC.masked_fill(~done_BC, -torch.inf)], 1)
        # Of two with the same score, the one that was finished first comes first.
        scores_BF, order_BF = scores_BF.sort(dim=1, descending=True, stable=True)
        best_BW = order_BF[:, : self._width]
        ends_BF4 = torch.cat([self._ends_BW4, ends_BC4], 1)
        self._ends_BW4.copy_(ends_BF4.gather(1, best_BW[:, :, None].expand(-1, -1, 4)))
        self._scores_BW.copy_(scores_BF[:, : self._width])
        self._complete_B += done_BC.sum(1)

    def _continue(self, step: SearchStep, state: State) -> None:
        """Make the picked candidates the open hypotheses, and find out which sentences are done.

        A sentence is done at its length limit, or when enough hypotheses are finished (W, or W / 2 with constraints)
        and the best open one, scored at its current length, does not beat the best of them (with constraints, or
        `stop_against` "best") or otherwise the worst of the W best.
        """
        parents_BW, tokens_BW, totals_BW = (each.gather(1, step.picked_BW) for each in step[:3])
        here_B1W = self.step_B[:, None, None].expand(-1, 1, self._width)
        self._parents_BTW.scatter_(1, here_B1W, parents_BW[:, None])
        self._tokens_BTW.scatter_(1, here_B1W, tokens_BW[:, None])
        state.select(parents_BW)
        self._totals_BW.copy_(totals_BW.masked_fill(tokens_BW == special.END, -torch.inf))
        self.last_BW.copy_(tokens_BW)
        best_open_B = self._totals_BW[:, 0].double() / self._penalty_T[self.step_B]
        enough_B = (self._complete_B >= self._enough) & (self._scores_BW[:, self._rank_to_beat] >= best_open_B)
        self.growing_B &= ~(enough_B | (self._limits_B == self.step_B + 1))
        self.step_B += self.growing_B  # what else happens to a sentence that is done has no effect

    def finished(self, sentences: Sequence[int]) -> "FinishedSentences":
        """Copy the finished hypotheses of the given sentences to the CPU; `FinishedSentences.read` returns them.

        With W = 1 this is the only hypothesis, even if it is not finished.
        """
        here_b = torch.tensor(sentences, device=self.last_BW.device)
        ends_BW4, scores_BW = self._ends_BW4, self._scores_BW
        if self._width == 1:  # the only one ends with its last token, also where the search was given up
            place_B1 = (self.step_B - self.growing_B.long())[:, None]
            last = self._totals_BW, place_B1, torch.zeros_like(place_B1), self.last_BW
            ends_BW4 = torch.stack([part.double() for part in last], -1)
            scores_BW = self._totals_BW / self._penalty_T[place_B1]
            scores_BW = scores_BW.masked_fill(self._limits_B[:, None] == 0, -torch.inf)
        parts = self._parents_BTW, self._tokens_BTW, ends_BW4, scores_BW
        return FinishedSentences(*(part.index_select(0, here_b).cpu().numpy() for part in parts))


class FinishedSentences(NamedTuple):
    """For b sentences, token and parent of each open hypothesis at each step, and the ends of the W best finished."""

    parents_bTW: npt.NDArray[np.int64]
    tokens_bTW: npt.NDArray[np.int64]
    ends_bW4: npt.NDArray[np.float64]
    """For the last token of each hypothesis: total log-probability, index of its step, row of the hypothesis that it
    continues, and token id.
    """
    scores_bW: npt.NDArray[np.float64]
    """Score of each hypothesis, by which they are ranked; -inf where a sentence has fewer than W hypotheses."""

    def read(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first; each is read from its end back to its beginning."""
        parents_bTW, tokens_bTW, ends_bW4, scores_bW = self
        steps_bW, rows_bW, last_bW = np.moveaxis(ends_bW4[:, :, 1:].astype(np.int64), -1, 0)
        texts_bWT = np.zeros((*steps_bW.shape, steps_bW.max(initial=0) + 1), np.int64)
        np.put_along_axis(texts_bWT, steps_bW[:, :, None], last_bW[:, :, None], -1)
        for place in range(texts_bWT.shape[-1] - 2, -1, -1):
            is_part = place < steps_bW
            texts_bWT[:, :, place][is_part] = np.take_along_axis(tokens_bTW[:, place], rows_bW, 1)[is_part]
            rows_bW = np.where(is_part, np.take_along_axis(parents_bTW[:, place], rows_bW, 1), rows_bW)
        lengths_bW = np.where(last_bW == special.END, steps_bW, steps_bW + 1)
        columns = texts_bWT.tolist(), lengths_bW.tolist(), scores_bW.tolist(), ends_bW4[:, :, 0].tolist()
        return [
            [
                Hypothesis(text[:length], score, total)
                for text, length, score, total in zip(*sentence, strict=True)
                if score != -np.inf
            ]
            for sentence in zip(*columns, strict=True)
        ]


@torch.inference_mode()
def beam(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    width: int,
    penalty: LengthPenalty,
    prefixes: Sequence[Sequence[int]] = (),
    watch: Watch | None = None,
    stop_against: StopAgainst = "worst",
    choose: Choose | None = None,
    constraints: Sequence[Sequence[Constraint]] = (),
) -> list[list[Hypothesis]]:
    """Search with a beam of `width` open hypotheses; return up to `width` finished ones per sentence, best first.

    A width of 1 is greedy search, or sampling if `choose` is given; it ends at an end token. Otherwise a sentence
    is done when `width` hypotheses are finished and the best open one, scored at its current length, does not beat the
    worst of the `width` best finished ones: Hugging Face's rule (`early_stopping=False`), which gives the same n-best
    lists. At the length limit the first `width` continuations count as finished without an end token, and the sentence
    is done, too.

    Scoring at the current length is a heuristic: with a length penalty above 0, an open hypothesis may score higher
    once it is longer. To stop as soon as `width` hypotheses are finished, as some engines do, cuts outputs short where
    the vocabulary is tiny: there a wrong end is as likely as any other wrong letter, and a few of them fill the list
    before the right hypothesis is complete.

    Args:
        limits: maximum number of output tokens of each sentence, counting the end token.
        prefixes: tokens with which the output of each sentence must begin; ignored if there are constraints.
        watch: called with each step; it may return indices of sentences whose search is abandoned.
        stop_against: "best" compares the best open hypothesis with the best finished one, as seq2see 0.1.0 did. It
            stops earlier with the same best hypothesis in most sentences, and with poorer ones below it.
        choose: picks each token instead of the most probable one; only with a width of 1.
        constraints: what the output of each sentence must contain (`constraints.py`); only with a width above 1. A
            sentence is then done when `width` / 2 hypotheses are finished and the best open one does not beat the best.
    """
    assert choose is None or width == 1
    assert not constraints or width > 1
    alive, device = list(range(len(limits))), memory.states_ND.device
    done: list[int] = []
    finished: list[FinishedSentences] = []
    hypotheses = Hypotheses(len(alive), width, max([1, *limits]), penalty, stop_against, device)
    hypotheses.begin(slice(None), torch.tensor(limits, dtype=torch.int64, device=device))
    hypotheses.force(alive, prefixes)
    if constraints:
        hypotheses.constrain(constraints)
    best = best_tokens if choose is None else chosen_token(choose)
    state = model.start(memory)
    while alive:
        step = hypotheses.advance(model, state, best)
        gone = (watch(step._replace(sentences=alive)) if watch is not None else None) or ()
        growing = hypotheses.growing_B.tolist()
        staying = [row for row, sentence in enumerate(alive) if growing[row] and sentence not in gone]
        if len(staying) == len(alive):
            continue
        leaving = sorted({*range(len(alive))} - {*staying})
        finished.append(hypotheses.finished(leaving))
        done += [alive[row] for row in leaving]
        alive = [alive[row] for row in staying]
        if alive:
            kept_B = torch.tensor(staying, device=device)
            state.keep_sentences(kept_B)
            hypotheses.keep_sentences(kept_B)
    if not done:
        return []
    found = dict(zip(done, FinishedSentences(*map(np.concatenate, zip(*finished, strict=True))).read(), strict=True))
    return [found[sentence] for sentence in range(len(limits))]
