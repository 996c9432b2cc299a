"""Search over hand-made models, small enough to try every sequence."""

import itertools
import math
import random
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn

import seq2see
from seq2see import special
from seq2see.config import StopAgainst
from seq2see.decoding import search
from seq2see.decoding.hypothesis import Hypothesis
from seq2see.model.interface import Memory, Seq2Seq
from seq2see.model.packing import Packing

Table = Callable[[tuple[int, ...]], Sequence[float]]
A, B_, C = 4, 5, 6


class Rows:
    """The texts so far, by row; sentence of each memory."""

    def __init__(self, sentences: int) -> None:
        self.sentences = list(range(sentences))
        self.texts: list[tuple[int, ...]] = [()] * sentences

    def select(self, parents_BW: torch.Tensor) -> None:
        width = parents_BW.shape[1]
        self.texts = [self.texts[row * width + one] for row, own in enumerate(parents_BW.tolist()) for one in own]

    def keep_sentences(self, sentences_B: torch.Tensor) -> None:
        width = len(self.texts) // len(self.sentences)
        self.texts = [self.texts[row * width + one] for row in sentences_B.tolist() for one in range(width)]
        self.sentences = [self.sentences[sentence] for sentence in sentences_B.tolist()]


class Spelled(Seq2Seq):
    """Each sentence has a table: the probabilities (or weights) of the next token after a text."""

    def __init__(self, *tables: Table) -> None:
        super().__init__()
        self.output = nn.Linear(1, 1)
        self.tables = tables

    def encode(self, source_N, offsets):
        raise NotImplementedError

    def decode(self, inputs_N, offsets, memory):
        raise NotImplementedError

    def start(self, memory):
        return Rows(memory.packing.count)

    def step(self, tokens_R, state):
        if len(tokens_R) > len(state.texts):  # the first step: each sentence has a hypothesis for each token
            state.texts = [text for text in state.texts for _ in range(len(tokens_R) // len(state.texts))]
        state.texts = [
            (*text, token) if token != special.BEGIN else text
            for text, token in zip(state.texts, tokens_R.tolist(), strict=True)
        ]
        width = len(state.texts) // len(state.sentences)
        assert len(state.texts) == width * len(state.sentences)
        weights = [self.tables[state.sentences[row // width]](text) for row, text in enumerate(state.texts)]
        return torch.tensor(weights, dtype=torch.float64).log()


def memory_of(sentences: int) -> Memory:
    return Memory(torch.zeros(sentences, 1), Packing(torch.arange(sentences + 1), torch.device("cpu")))


def random_table(seed: int, vocabulary: int) -> Table:
    """Weights that depend on the whole text; padding and begin are likeliest, so that only a rule keeps them out."""

    def table(text: tuple[int, ...]) -> list[float]:
        dice = random.Random(f"{seed} {text}")
        weights = [dice.random() for _ in range(vocabulary)]
        weights[special.PAD] = weights[special.BEGIN] = 2.0
        return weights

    return table


def every_text(table: Table, limit: int, penalty: search.LengthPenalty) -> list[tuple[float, list[int]]]:
    """(score, tokens) of all that can be said in `limit` tokens, best first."""
    found = []
    tokens = [token for token in range(len(table(()))) if token not in (special.PAD, special.BEGIN, special.END)]

    def log(text: tuple[int, ...], token: int) -> float:
        weights = table(text)
        weights[special.PAD] = weights[special.BEGIN] = 0.0  # what is never said has no share
        return math.log(weights[token] / sum(weights))

    for length in range(limit + 1):
        for text in itertools.product(tokens, repeat=length):
            total = sum(log(text[:place], token) for place, token in enumerate(text))
            if length < limit:
                total += log(text, special.END)
            scored = length + 1 if length < limit else length
            found.append((total / penalty(scored), list(text)))
    return sorted(found, key=lambda each: -each[0])


PENALTIES = {
    "sum": search.power_penalty(0.0),
    "mean": search.power_penalty(1.0),
    "root": search.power_penalty(0.5),
    "paper": search.paper_penalty(0.6),
}


def test_penalties_by_hand() -> None:
    assert search.power_penalty(1.0)(7) == 7
    assert search.power_penalty(0.0)(7) == 1
    assert search.power_penalty(0.5)(9) == 3
    assert search.paper_penalty(1.0)(7) == 2
    assert search.paper_penalty(0.6)(7) == pytest.approx(2**0.6)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_is_exhaustive_search(name: str, seed: int) -> None:
    table, penalty, limit = random_table(seed, vocabulary=6), PENALTIES[name], 3
    expected = every_text(table, limit, penalty)
    found = search.beam(Spelled(table), memory_of(1), [limit], len(expected), penalty)[0]
    assert len(expected) == 1 + 3 + 9 + 27
    assert [each.tokens for each in found] == [tokens for _, tokens in expected]
    assert [each.score for each in found] == pytest.approx([score for score, _ in expected], rel=1e-5)


def test_the_length_penalty_decides_between_short_and_long() -> None:
    def table(text: tuple[int, ...]) -> list[float]:
        if text == ():
            return [0, 0, 0, 0.55, 0.45, 0, 0]
        return [0, 0, 0, 0, 0, 1.0, 0] if text == (A,) else [0, 0, 0, 1.0, 0, 0, 0]

    model = Spelled(table)
    short = search.beam(model, memory_of(1), [4], 4, search.power_penalty(0.0))[0][0]
    long = search.beam(model, memory_of(1), [4], 4, search.power_penalty(1.0))[0][0]
    assert (short.tokens, long.tokens) == ([], [A, B_])


def test_beam_finds_what_greedy_misses() -> None:
    """The likeliest first token leads nowhere; the second is followed by certainty."""

    def table(text: tuple[int, ...]) -> list[float]:
        if text == ():
            return [0, 0, 0, 0, 0.6, 0.4, 0]
        if text == (A,):
            return [0, 0.25, 0, 0.25, 0, 0.25, 0.25]
        if text == (B_,):
            return [0, 0, 0, 0, 0, 0, 1.0]
        return [0, 0, 0, 1.0, 0, 0, 0]

    model, penalty = Spelled(table), search.power_penalty(1.0)
    assert search.beam(model, memory_of(1), [5], 1, penalty)[0][0].tokens[0] == A
    best = search.beam(model, memory_of(1), [5], 2, penalty)[0][0]
    assert best.tokens == [B_, C]
    assert best.score == pytest.approx(math.log(0.4) / 3, rel=1e-5)


@pytest.mark.parametrize("name", PENALTIES)
def test_beam_of_one_is_greedy(name: str) -> None:
    model = Spelled(*(random_table(seed, vocabulary=7) for seed in range(20)))
    limits = [1 + seed % 6 for seed in range(20)]
    greedy = search.beam(model, memory_of(20), limits, 1, PENALTIES[name], choose=search.greedy)
    beam = search.beam(model, memory_of(20), limits, 1, PENALTIES[name])
    for one, other in zip(greedy, beam, strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in other]
        assert one[0].score == pytest.approx(other[0].score, rel=1e-5)


def test_greedy_takes_the_likeliest_and_counts_the_end() -> None:
    def table(text: tuple[int, ...]) -> list[float]:
        return [0, 0, 0, 0.1, 0.7, 0.1, 0.1] if len(text) < 2 else [0, 0, 0, 0.6, 0.2, 0.1, 0.1]

    (ended,), (cut,) = search.beam(Spelled(table, table), memory_of(2), [9, 2], 1, search.power_penalty(1.0))
    assert ended.tokens == cut.tokens == [A, A]
    assert ended.score == pytest.approx((2 * math.log(0.7) + math.log(0.6)) / 3, rel=1e-5)
    assert cut.score == pytest.approx(math.log(0.7), rel=1e-5)  # two tokens, no end


@pytest.mark.parametrize("width", [2, 3, 5])
def test_n_best_is_sorted_distinct_and_scored_right(width: int) -> None:
    penalty = search.power_penalty(1.0)
    tables = [random_table(seed, vocabulary=7) for seed in range(12)]
    found = search.beam(Spelled(*tables), memory_of(12), [4] * 12, width, penalty)
    for table, hypotheses in zip(tables, found, strict=True):
        truth = {tuple(tokens): score for score, tokens in every_text(table, 4, penalty)}
        assert len(hypotheses) == width
        assert len({tuple(each.tokens) for each in hypotheses}) == width
        assert [each.score for each in hypotheses] == sorted((each.score for each in hypotheses), reverse=True)
        for each in hypotheses:
            assert each.score == pytest.approx(truth[tuple(each.tokens)], rel=1e-5)


def never_ends(text: tuple[int, ...]) -> list[float]:
    return [0.3, 0, 0.3, 0, 0.2, 0.1, 0.1]


@pytest.mark.parametrize("width", [1, 2, 4])
def test_each_sentence_keeps_its_own_limit(width: int) -> None:
    limits = [3, 1, 7, 5, 1, 2]
    model, penalty = Spelled(*[never_ends] * len(limits)), search.power_penalty(1.0)
    for found in (
        search.beam(model, memory_of(len(limits)), limits, width, penalty),
        search.beam(model, memory_of(len(limits)), limits, 1, penalty, choose=search.greedy),
    ):
        for hypotheses, limit in zip(found, limits, strict=True):
            assert all(len(each.tokens) == limit for each in hypotheses)
            assert hypotheses[0].tokens == [A] * limit
            assert hypotheses[0].score == pytest.approx(math.log(0.2 / 0.4), rel=1e-5)


def test_no_sentences() -> None:
    model, penalty = Spelled(), search.power_penalty(1.0)
    assert search.beam(model, memory_of(0), [], 1, penalty) == []
    assert search.beam(model, memory_of(0), [], 3, penalty) == []


def test_padding_and_begin_are_never_said() -> None:
    def table(text: tuple[int, ...]) -> list[float]:
        return [1000, 1, 1000, 1, 1, 1, 1]

    model, penalty = Spelled(*[table] * 50), search.power_penalty(1.0)
    for choose in (search.greedy, search.sampling(seed=1), search.sampling(temperature=5.0, seed=1)):
        for (each,) in search.beam(model, memory_of(50), [4] * 50, 1, penalty, choose=choose):
            assert not set(each.tokens) & {special.PAD, special.BEGIN, special.END}
    for hypotheses in search.beam(model, memory_of(50), [4] * 50, 6, penalty):
        assert all(not set(each.tokens) & {special.PAD, special.BEGIN, special.END} for each in hypotheses)


@pytest.mark.parametrize("width", [1, 3])
def test_a_forced_prefix_is_said_and_scored(width: int) -> None:
    tables = [random_table(seed, vocabulary=7) for seed in range(4)]
    prefixes = [[], [C], [B_, B_, A], [A, C]]
    model, penalty, limits = Spelled(*tables), search.power_penalty(1.0), [5, 5, 5, 5]
    free = search.beam(model, memory_of(4), limits, width, penalty)
    found = search.beam(model, memory_of(4), limits, width, penalty, prefixes)
    assert found[0] == free[0]
    for table, prefix, hypotheses in zip(tables, prefixes, found, strict=True):
        truth = {tuple(tokens): score for score, tokens in every_text(table, 5, penalty)}
        assert hypotheses
        for each in hypotheses:
            assert each.tokens[: len(prefix)] == prefix
            assert each.score == pytest.approx(truth[tuple(each.tokens)], rel=1e-5)
    greedy = search.beam(model, memory_of(4), limits, 1, penalty, prefixes, choose=search.greedy)
    assert [each.tokens[: len(prefix)] for prefix, (each,) in zip(prefixes, greedy, strict=True)] == prefixes
    if width == 1:
        assert [each.tokens for (each,) in greedy] == [each.tokens for (each,) in found]


def test_a_forced_prefix_over_the_whole_beam_is_exhaustive_under_it() -> None:
    table, penalty = random_table(8, vocabulary=6), search.paper_penalty(0.6)
    expected = [each for each in every_text(table, 4, penalty) if each[1][:2] == [B_, A]]
    found = search.beam(Spelled(table), memory_of(1), [4], 60, penalty, [[B_, A]])[0]
    assert [each.tokens for each in found] == [tokens for _, tokens in expected]
    assert [each.score for each in found] == pytest.approx([score for score, _ in expected], rel=1e-5)


def test_a_prefix_longer_than_the_limit_is_cut() -> None:
    model, penalty = Spelled(never_ends), search.power_penalty(1.0)
    assert search.beam(model, memory_of(1), [2], 3, penalty, [[C, C, C]])[0][0].tokens == [C, C]
    assert search.beam(model, memory_of(1), [2], 1, penalty, [[C, C, C]])[0][0].tokens == [C, C]


def test_a_wrong_end_as_likely_as_any_wrong_letter_does_not_cut_the_right_text_short() -> None:
    """Smoothed labels over a tiny vocabulary: each step offers an end, and soon the list is full of them."""
    right = [A, B_, C, C, B_, A, B_, C, A, A, B_, C]

    def table(text: tuple[int, ...]) -> list[float]:
        place = len(text)
        wanted = special.END if place >= len(right) else right[place]
        return [0, 0.1 / 4, 0] + [0.9 if token == wanted else 0.1 / 4 for token in range(special.END, 7)]

    for alpha in (0.0, 0.6, 1.0):
        found = search.beam(Spelled(table), memory_of(1), [40], 5, search.power_penalty(alpha))[0]
        assert found[0].tokens == right
        assert found[0].score == pytest.approx(13 * math.log(0.9) / 13**alpha, rel=1e-5)
        assert len(found) == 5


def test_a_finished_hypothesis_is_replaced_by_a_better_one_that_ends_later() -> None:
    """After two steps "" (-0.69) and "B" (-0.86) are finished; "AC" is open at -0.75 and ends at -0.73."""

    def table(text: tuple[int, ...]) -> list[float]:
        after: dict[tuple[int, ...], list[float]] = {
            (): [0, 0, 0, 0.5, 0.25, 0.2, 0.05],
            (A,): [0, 0, 0, 0.1, 0, 0, 0.9],
            (B_,): [0, 0, 0, 0.9, 0.1, 0, 0],
            (A, C): [0, 0, 0, 0.5, 0.25, 0.25, 0],
        }
        return after.get(text, [0, 0, 0, 1.0, 0, 0, 0])

    model, penalty = Spelled(table), search.power_penalty(1.0)
    (found,) = search.beam(model, memory_of(1), [9], 2, penalty)
    assert [each.tokens for each in found] == [[], [A, C]]
    assert [each.score for each in found] == pytest.approx([math.log(0.5), math.log(0.25 * 0.9 * 0.5) / 3], rel=1e-5)
    (found,) = search.beam(model, memory_of(1), [9], 2, penalty, stop_against="best")
    assert [each.tokens for each in found] == [[], [B_]]


def ends_early(table: Table) -> Table:
    """Make the end six times as likely, so that lists fill up before the limit."""
    return lambda text: [weight * (6 if token == special.END else 1) for token, weight in enumerate(table(text))]


def beam_in_words(
    table: Table, limit: int, width: int, penalty: search.LengthPenalty, stop_against: StopAgainst
) -> list[tuple[float, list[int]]]:
    """Beam search over one sentence in plain Python: (score, tokens) of the finished hypotheses, best first."""
    opened: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, limit + 1):
        candidates = []
        for total, text in opened:
            weights = [0.0 if token in search.NEVER else weight for token, weight in enumerate(table(text))]
            for token, weight in enumerate(weights):
                if weight:
                    candidates.append((total + math.log(weight / sum(weights)), (*text, token)))
        candidates.sort(reverse=True)
        for total, text in candidates[:width]:
            if text[-1] == special.END or length == limit:
                finished.append((total / penalty(length), [token for token in text if token != special.END]))
        opened = [each for each in candidates[: 2 * width] if each[1][-1] != special.END][:width]
        finished = sorted(finished, reverse=True)[:width]
        if len(finished) == width and finished[-1 if stop_against == "worst" else 0][0] >= opened[0][0] / penalty(
            length
        ):
            break
    return finished


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("width", [2, 3, 5])
def test_a_sentence_stops_by_the_rule_that_was_asked_for(name: str, width: int) -> None:
    """Limits of 2 to 9 tokens end some sentences, and the rule ends the others."""
    tables = [ends_early(random_table(seed, vocabulary=7)) for seed in range(100)]
    limits, penalty = [2 + seed % 8 for seed in range(100)], PENALTIES[name]
    expected: dict[StopAgainst, list[list[tuple[float, list[int]]]]] = {}
    rules: tuple[StopAgainst, ...] = ("worst", "best")
    for rule in rules:
        found = search.beam(Spelled(*tables), memory_of(100), limits, width, penalty, stop_against=rule)
        expected[rule] = [
            beam_in_words(table, limit, width, penalty, rule) for table, limit in zip(tables, limits, strict=True)
        ]
        for hypotheses, wanted in zip(found, expected[rule], strict=True):
            assert [each.tokens for each in hypotheses] == [tokens for _, tokens in wanted]
            assert [each.score for each in hypotheses] == pytest.approx([score for score, _ in wanted], rel=1e-4)
    for longer, shorter in zip(expected["worst"], expected["best"], strict=True):
        assert all(one[0] >= other[0] for one, other in zip(longer, shorter, strict=True)), "no place gets worse"
    if name == "mean":  # with a weaker length penalty the rules seldom differ
        assert expected["worst"] != expected["best"]


PROBABILITIES = torch.tensor([0.45, 0.3, 0.15, 0.1])


def frequencies(choose: search.Choose, draws: int = 4000) -> torch.Tensor:
    return choose(PROBABILITIES.log().expand(draws, -1)).bincount(minlength=4) / draws


def is_close(counts: torch.Tensor, expected: torch.Tensor, draws: int = 4000) -> bool:
    """Chi-square with three degrees of freedom stays below 16.3 in 999 of 1,000 cases."""
    return bool(((counts - expected) ** 2 / expected).sum() * draws < 16.3)


def test_samples_are_drawn_by_their_probability() -> None:
    assert is_close(frequencies(search.sampling(seed=3)), PROBABILITIES)
    assert not is_close(frequencies(search.sampling(seed=3)), torch.tensor([0.40, 0.35, 0.15, 0.1]))


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_temperature_sharpens_and_flattens(temperature: float) -> None:
    expected = PROBABILITIES ** (1 / temperature)
    assert is_close(frequencies(search.sampling(temperature, seed=3)), expected / expected.sum())


def test_top_k_and_top_p_cut_the_tail() -> None:
    two = torch.tensor([0.6, 0.4, 1e-9, 1e-9])
    assert is_close(frequencies(search.sampling(top_k=2, seed=3)), two)
    assert is_close(frequencies(search.sampling(top_p=0.5, seed=3)), two)  # 0.45 are not enough, 0.75 are
    assert is_close(frequencies(search.sampling(top_k=3, top_p=0.6, seed=3)), two)  # of three, 0.5 + 0.33
    assert frequencies(search.sampling(top_k=2, seed=3))[2:].sum() == 0
    assert frequencies(search.sampling(top_p=0.5, seed=3))[2:].sum() == 0
    assert frequencies(search.sampling(top_k=99, seed=3))[3] > 0  # more than there are


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 0.01}, {"temperature": 1e-4}])
def test_sampling_with_no_freedom_is_greedy(options: dict[str, float]) -> None:
    model = Spelled(*(random_table(seed, vocabulary=7) for seed in range(30)))
    penalty, limits = search.power_penalty(1.0), [5] * 30
    greedy = search.beam(model, memory_of(30), limits, 1, penalty)
    choose = search.sampling(**options, seed=1)  # type: ignore[arg-type]
    assert search.beam(model, memory_of(30), limits, 1, penalty, choose=choose) == greedy


def test_the_seed_of_sampling_decides() -> None:
    model = Spelled(*[random_table(1, vocabulary=9)] * 30)
    penalty, limits = search.power_penalty(1.0), [6] * 30

    def draw(seed: int | None) -> list[list[int]]:
        found = search.beam(model, memory_of(30), limits, 1, penalty, choose=search.sampling(seed=seed))
        return [each.tokens for (each,) in found]

    assert draw(5) == draw(5) != draw(6)
    assert draw(None) != draw(None)
    assert len({tuple(tokens) for tokens in draw(5)}) > 10  # each row draws for itself


def test_a_sample_is_scored_by_the_model_and_not_by_the_temperature() -> None:
    penalty = search.power_penalty(1.0)
    table = random_table(2, vocabulary=7)
    truth = {tuple(tokens): score for score, tokens in every_text(table, 3, penalty)}
    choose = search.sampling(temperature=3.0, seed=1)
    for (each,) in search.beam(Spelled(*[table] * 20), memory_of(20), [3] * 20, 1, penalty, choose=choose):
        assert each.score == pytest.approx(truth[tuple(each.tokens)], rel=1e-5)


@pytest.mark.parametrize("width", [1, 3])
def test_the_search_leaves_no_gradient_and_no_mode_behind(width: int) -> None:
    torch.manual_seed(0)
    model = seq2see.Transformer(11, 11, encoder_layers=1, decoder_layers=1, d_model=8, heads=2, d_ff=16).eval()
    memory = model.encode(torch.tensor([5, 6, 3, 7, 3]), torch.tensor([0, 3, 5]))
    search.beam(model, memory, [4, 4], width, search.power_penalty(1.0))
    assert torch.is_grad_enabled()
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize(("rows", "size", "count"), [(3, 1000, 10), (1, 64 * 25, 5), (2, 50, 4), (2, 700, 1)])
def test_top_is_topk(rows, size, count):
    """By blocks, with and without a rest, and where there are too few of them."""
    torch.manual_seed(rows)
    scores = torch.randn(rows, size)
    scores[0, -1] = 9.0  # in the rest
    values, places = search.top(scores, count)
    expected = scores.topk(count)
    assert torch.equal(values, expected.values)
    assert torch.equal(places, expected.indices)


def test_top_of_forbidden_tokens():
    scores = torch.full((1, 640), -torch.inf)
    scores[0, 300] = 1.0
    values, places = search.top(scores, 3)
    assert (values[0, 0], places[0, 0]) == (1.0, 300)
    assert len(set(places[0].tolist())) == 3


@pytest.mark.parametrize("width", [1, 3])
def test_who_watches_can_give_a_sentence_up(width: int) -> None:
    """It leaves at the next step, and the other is searched as if alone."""
    tables, limits, penalty = (random_table(3, 9), random_table(4, 9)), [6, 6], search.power_penalty(1.0)
    seen: list[list[int]] = []

    def watch(step: search.SearchStep) -> set[int]:
        seen.append(step.sentences)
        return {0} if len(seen) == 2 else set()

    def run(model: Spelled, sentences: int, watch: search.Watch | None) -> list[list[Hypothesis]]:
        memory, few = memory_of(sentences), limits[:sentences]
        return search.beam(model, memory, few, width, penalty, watch=watch)

    (alone,) = run(Spelled(tables[1]), 1, None)
    _, beside = run(Spelled(*tables), 2, watch)
    assert [each.tokens for each in beside] == [each.tokens for each in alone]
    assert seen[:2] == [[0, 1], [0, 1]]
    assert len(seen) > 2
    assert all(sentences == [1] for sentences in seen[2:])
