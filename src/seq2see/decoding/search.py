"""Search through what a decoder might say: greedy, sampling and beam (paper, section 6.1).

All of them use only `start` and `step`, so they serve every model. B sentences hold W hypotheses each in R = B x W
rows; finished sentences leave the batch. A hypothesis' length counts all tokens that were scored, the end included.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seq2see import special
from seq2see.config import Decoding, StopAgainst
from seq2see.decoding.hypothesis import Hypothesis
from seq2see.model.interface import Memory, Seq2Seq, State

BLOCK = 64
"""Scores whose maximum is taken together in `top`."""
NEVER = (special.PAD, special.BEGIN)
"""Tokens that no output contains."""


class Step(NamedTuple):
    """One step of a search, for those who watch: the C candidates of each of B sentences, best first."""

    sentences: list[int]
    """Which of the batch are still searched: B of them."""
    parents_BC: Tensor
    """Which of the sentence's W rows of this step a candidate goes on from."""
    tokens_BC: Tensor
    totals_BC: Tensor
    """Sums of log-probabilities up to and with the token; -inf where there is no such candidate."""
    done_BC: Tensor
    """Which are complete translations."""
    picked_BW: Tensor
    """The candidates that become the W rows of the next step."""


LengthPenalty = Callable[[int], float]
Choose = Callable[[Tensor], Tensor]
Watch = Callable[[Step], Collection[int] | None]
"""Is shown each step, and may name sentences that nobody waits for any more: they are given up."""


def power_penalty(alpha: float) -> LengthPenalty:
    """length^alpha: 1 ranks by the mean log-probability of a token, 0 by the sum."""
    return lambda length: length**alpha


def paper_penalty(alpha: float) -> LengthPenalty:
    """((5 + length) / 6)^alpha, as in Wu et al. (2016), which the paper follows."""
    return lambda length: ((5 + length) / 6) ** alpha


def penalty_of(settings: Decoding) -> LengthPenalty:
    """The one that the settings name."""
    formula = paper_penalty if settings.length_formula == "paper" else power_penalty
    return formula(settings.length_penalty)


def sampling(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, seed: int | None = None) -> Choose:
    """Draw the next token from the `top_k` likeliest, of these from the fewest that hold `top_p` of the probability."""
    generators: dict[torch.device, torch.Generator] = {}

    def choose(log_probabilities_RV: Tensor) -> Tensor:
        scores_RV = log_probabilities_RV / temperature
        if top_k:
            least_R1 = scores_RV.topk(min(top_k, scores_RV.shape[-1])).values[:, -1:]
            scores_RV = scores_RV.masked_fill(scores_RV < least_R1, -torch.inf)
        if top_p < 1:
            sorted_RV, order_RV = scores_RV.softmax(-1).sort(descending=True)
            outside_RV = sorted_RV.cumsum(-1) - sorted_RV >= top_p  # what came before already holds top_p
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
    """The likeliest next token."""
    return top(log_probabilities_RV, 1)[1][:, 0]


def top(scores_RV: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row, largest first, and their places: as `topk`, which is slow on a processor.

    The largest numbers lie in the blocks whose maxima are largest: finding maxima is one quick pass, and few numbers
    are left to be sorted.
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


@torch.inference_mode()
def one_by_one(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    penalty: LengthPenalty,
    choose: Choose = greedy,
    prefixes: Sequence[Sequence[int]] = (),
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """Commit to one token at each step, by `choose`; the prefix of a sentence is forced."""
    device = memory.states_ND.device
    outputs: list[list[int]] = [[] for _ in limits]
    totals = [0.0] * len(limits)
    alive = list(range(len(limits)))
    state = model.start(memory)
    last_R = torch.full((len(alive),), special.BEGIN, device=device)
    for step in range(max(limits, default=0)):
        logs_RV = _next_logs(model, last_R, state, alive, step, prefixes)
        last_R = choose(logs_RV)
        chosen_R = logs_RV.gather(1, last_R[:, None])[:, 0]
        staying = []
        for row, (token, log) in enumerate(zip(last_R.tolist(), chosen_R.tolist(), strict=True)):
            sentence = alive[row]
            totals[sentence] += log
            if token != special.END:
                outputs[sentence].append(token)
                if step + 1 < limits[sentence]:
                    staying.append(row)
        if watch is not None:
            first_B1 = torch.zeros_like(last_R)[:, None]
            totals_B1 = torch.tensor([[totals[sentence]] for sentence in alive])
            done_B1 = torch.tensor([[row not in staying] for row in range(len(alive))])
            gone = watch(Step(alive, first_B1, last_R[:, None], totals_B1, done_B1, first_B1)) or ()
            staying = [row for row in staying if alive[row] not in gone]
        if not staying:
            break
        if len(staying) < len(alive):
            rows_R = torch.tensor(staying, device=device)
            state.keep_sentences(rows_R)
            last_R = last_R[rows_R]
            alive = [alive[row] for row in staying]
    return [
        [Hypothesis(tokens, total / penalty(min(len(tokens) + 1, limit)), total)]  # at the limit there is no end
        for tokens, total, limit in zip(outputs, totals, limits, strict=True)
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
) -> list[list[Hypothesis]]:
    """Search with a beam of `width` open hypotheses; return up to `width` finished ones per sentence, best first.

    Each step ranks the 2 x width best continuations of a sentence. An end token among the first `width` of them
    finishes a hypothesis, and the `width` best of the others stay open. A sentence is done when `width` hypotheses are
    finished and the best open one, scored at its present length, does not beat the worst of the `width` best finished
    ones: Hugging Face's rule (`early_stopping=False`), by which the n-best lists are the same. At the length limit the
    first `width` continuations count as finished without an end token, and the sentence is done, too.

    The present length is a heuristic: with a length penalty above 0, an open hypothesis may score higher once it is
    longer. To stop as soon as `width` hypotheses are finished, as some engines do, cuts outputs short where the
    vocabulary is tiny: there a wrong end is as likely as any other wrong letter, and a few of them fill the list before
    the right hypothesis is complete.

    Args:
        stop_against: "best" compares the best open hypothesis with the best finished one, as seq2see 0.1.0 did. It
            stops earlier with the same best hypothesis in most sentences, and with poorer ones below it.
    """
    device = memory.states_ND.device
    finished: list[list[Hypothesis]] = [[] for _ in limits]
    alive = list(range(len(limits)))
    state = model.start(memory)
    B, W = len(alive), width
    last_R = torch.full((B * W,), special.BEGIN, device=device)
    totals_BW = torch.full((B, W), -torch.inf, device=device)
    totals_BW[:, 0] = 0.0  # all W begin alike: only one of them counts
    texts_BWT = torch.empty(B, W, 0, dtype=torch.int64, device=device)

    for step in range(max(limits, default=0)):
        B, length = len(alive), step + 1
        rows = [sentence for sentence in alive for _ in range(W)]
        logs_RV = _next_logs(model, last_R, state, rows, step, prefixes)
        # The best 2W of a sentence are among the best 2W of each of its hypotheses.
        most = min(2 * W, logs_RV.shape[-1])
        best_RC, best_tokens_RC = top(logs_RV, most)
        totals_BC, flat_BC = (totals_BW.view(-1, 1) + best_RC).view(B, -1).topk(2 * W)
        parents_BC, tokens_BC = flat_BC // most, best_tokens_RC.view(B, -1).gather(1, flat_BC)
        ends_BC = tokens_BC == special.END

        # Which of the candidates end here: an end in the first W, or anything in the first W at the limit.
        at_limit_B = torch.tensor([limits[sentence] == length for sentence in alive], device=device)
        done_BC = (ends_BC | at_limit_B[:, None]) & (totals_BC > -torch.inf)
        done_BC[:, W:] = False
        for row, candidate in done_BC.nonzero().tolist():
            text = texts_BWT[row, parents_BC[row, candidate]].tolist()
            if not ends_BC[row, candidate]:
                text.append(int(tokens_BC[row, candidate]))
            total = float(totals_BC[row, candidate])
            finished[alive[row]].append(Hypothesis(text, total / penalty(length), total))

        # The W best that do not end go on; there are always W, since each parent has one end only.
        totals_BW, picked_BW = totals_BC.masked_fill(ends_BC, -torch.inf).topk(W)
        parents_BW, tokens_BW = parents_BC.gather(1, picked_BW), tokens_BC.gather(1, picked_BW)
        texts_BWT = texts_BWT.gather(1, parents_BW[:, :, None].expand(-1, -1, step))
        texts_BWT = torch.cat([texts_BWT, tokens_BW[:, :, None]], 2)
        gone: Collection[int] = ()
        if watch is not None:
            gone = watch(Step(alive, parents_BC, tokens_BC, totals_BC, done_BC, picked_BW)) or ()

        best_open = totals_BW[:, 0].tolist()  # divided below in double precision, as the scores of finished ones are
        staying = [
            row
            for row, (sentence, total) in enumerate(zip(alive, best_open, strict=True))
            if limits[sentence] > length
            and sentence not in gone
            and not _is_done(finished[sentence], W, total / penalty(length), stop_against)
        ]
        if not staying:
            break
        if len(staying) < B:
            kept_B = torch.tensor(staying, device=device)
            state.keep_sentences(kept_B)
            totals_BW, tokens_BW, texts_BWT = totals_BW[kept_B], tokens_BW[kept_B], texts_BWT[kept_B]
            parents_BW = parents_BW[kept_B]
            alive = [alive[row] for row in staying]
        state.select(parents_BW)
        last_R = tokens_BW.flatten()
    return [sorted(each, key=lambda hypothesis: -hypothesis.score)[:W] for each in finished]


def _is_done(finished: list[Hypothesis], width: int, best_open: float, stop_against: StopAgainst) -> bool:
    """Return whether `width` hypotheses are finished and the best open score does not beat the one to stop against."""
    if len(finished) < width:
        return False
    ranked = sorted((hypothesis.score for hypothesis in finished), reverse=True)
    return ranked[rank_to_beat(width, stop_against)] >= best_open


def rank_to_beat(width: int, stop_against: StopAgainst) -> int:
    """Return the place, in a list of finished hypotheses sorted by score, of the one that an open one has to beat."""
    return width - 1 if stop_against == "worst" else 0


def _next_logs(
    model: Seq2Seq, last_R: Tensor, state: State, rows: list[int], step: int, prefixes: Sequence[Sequence[int]]
) -> Tensor:
    """RV: log-probabilities of the next token, with only the forced one left where a prefix still runs."""
    scores_RV = model.step(last_R, state).float()
    scores_RV[:, NEVER] = -torch.inf
    logs_RV = scores_RV.log_softmax(-1)
    if any(step < len(prefix) for prefix in prefixes):
        for row, sentence in enumerate(rows):
            if step < len(prefixes[sentence]):
                forced = prefixes[sentence][step]
                only = logs_RV[row, forced].clone()
                logs_RV[row] = -torch.inf
                logs_RV[row, forced] = only
    return logs_RV
