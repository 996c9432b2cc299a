"""Scores of translations, each with the signature that says what was computed.

    name        better  what
    bleu        higher  sacreBLEU's BLEU of the whole corpus
    chrf        higher  sacreBLEU's chrF2: character n-grams, kinder to rich morphology
    ter         lower   sacreBLEU's TER: edits and shifts of words
    exact       higher  % of items whose best hypothesis equals a reference; 100 - exact is called word error
    top_5       higher  % of items with a reference among the first five hypotheses, where the n-best lists hold five
    error_rate  lower   edits per 100 symbols of the reference: phones, words, or characters, by `unit`

An item may have several references: the sacreBLEU scores treat them as sacreBLEU does, the others take the one that
fits best. sacreBLEU is imported where it is used: it costs a quarter of a second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from seq2see import __version__
from seq2see.errors import DataError, SettingError, nearest

Unit = Literal["symbols", "characters"]
TOKENIZERS = ("none", "13a", "char", "ko-mecab")
NAMES = ("bleu", "chrf", "ter", "exact", "top_k", "error_rate")
_LOWER_IS_BETTER = ("loss", "ter", "error_rate")


@dataclass(frozen=True)
class Score:
    """One number, its name, and how it came about."""

    name: str
    value: float
    signature: str


@dataclass(frozen=True)
class Scores:
    """All scores of one evaluation, in the order of `NAMES`."""

    scores: tuple[Score, ...]

    def __iter__(self) -> Iterator[Score]:
        return iter(self.scores)

    def __getitem__(self, name: str) -> Score:
        return {score.name: score for score in self.scores}[name]

    def as_dict(self) -> dict[str, dict[str, float | str]]:
        """`{"bleu": {"value": 31.4, "signature": "nrefs:1|..."}, ...}`, ready for JSON."""
        return {score.name: {"value": score.value, "signature": score.signature} for score in self.scores}


def score(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    tokenize: str = "13a",
    names: Sequence[str] | None = None,
    unit: Unit = "symbols",
) -> Scores:
    """Score n-best lists against references.

    Args:
        hypotheses: per item its n-best list, the best first, at least one.
        references: per item its references, at least one; items may have different numbers of them.
        tokenize: how BLEU cuts words: one of `TOKENIZERS`. The other scores do not depend on it.
        names: which of `NAMES` to compute; all where None. `top_k` is left out where every list holds one hypothesis.
        unit: what the error rate counts: `symbols` (separated by white space: words, phones) or `characters`.
    """
    wanted = NAMES if names is None else tuple(names)
    _check(hypotheses, references, tokenize, wanted, unit)
    best = [n_best[0] for n_best in hypotheses]
    longest = max(len(n_best) for n_best in hypotheses)
    found = []
    for name in NAMES:
        if name not in wanted:
            continue
        match name:
            case "bleu" | "chrf" | "ter":
                found.append(_by_sacrebleu(name, best, references, tokenize))
            case "exact":
                found.append(Score("exact", _percent_matched(hypotheses, references, 1), _signature("refs:any")))
            case "top_k" if longest > 1:
                value = _percent_matched(hypotheses, references, longest)
                found.append(Score(f"top_{longest}", value, _signature(f"k:{longest}|refs:any")))
            case "error_rate":
                value = _error_rate(best, references, unit)
                found.append(Score("error_rate", value, _signature(f"unit:{unit}|refs:best")))
    return Scores(tuple(found))


def one(metric: str, hypotheses: Sequence[str], references: Sequence[str], unit: Unit = "symbols") -> float:
    """One score of best hypotheses against one reference each: what validation asks for."""
    found = score([[text] for text in hypotheses], [[text] for text in references], names=[metric], unit=unit)
    return found[metric].value


def higher_is_better(metric: str) -> bool:
    """Whether a larger value of this metric is the better one; `loss` counts as a metric here."""
    return metric not in _LOWER_IS_BETTER


def edit_distance(left: Sequence[str], right: Sequence[str]) -> int:
    """Fewest insertions, deletions and substitutions that turn one sequence into the other (Levenshtein).

    Row by row over the table of prefixes: `above[j]` is the distance of `left[:i]` to `right[:j]`.
    """
    if left == right:
        return 0
    above = list(range(len(right) + 1))
    for i, symbol in enumerate(left, start=1):
        row = [i]
        for j, other in enumerate(right, start=1):
            substituted = above[j - 1] + (symbol != other)
            row.append(min(substituted, above[j] + 1, row[j - 1] + 1))
        above = row
    return above[-1]


def _check(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    tokenize: str,
    names: Sequence[str],
    unit: str,
) -> None:
    if tokenize not in TOKENIZERS:
        raise SettingError(f"tokenize = {tokenize!r}: unknown. {nearest(tokenize, TOKENIZERS)}")
    for name in names:
        if name not in NAMES:
            raise SettingError(f"unknown score '{name}'. {nearest(name, NAMES)}")
    if unit not in get_args(Unit):
        raise SettingError(f"unit = {unit!r}: unknown. {nearest(unit, get_args(Unit))}")
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} translations but {len(references)} references: expected one for one")
    if not hypotheses:
        raise DataError("no translations to score")
    for number, (n_best, accepted) in enumerate(zip(hypotheses, references, strict=True), start=1):
        if not n_best or not accepted:
            raise DataError(f"item {number}: no {'reference' if n_best else 'translation'}, expected at least one")


def _by_sacrebleu(name: str, best: Sequence[str], references: Sequence[Sequence[str]], tokenize: str) -> Score:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    metric: Any
    match name:
        case "bleu":
            try:
                metric = BLEU(tokenize=tokenize)
            except RuntimeError:  # sacreBLEU's answer to a missing MeCab, the only tokenizer here that is not its own
                raise SettingError(
                    f"tokenize = {tokenize!r}: its library is not installed. Run: pip install 'sacrebleu[ko]'"
                ) from None
        case "chrf":
            metric = CHRF()
        case _:
            metric = TER()
    # One stream per place in the reference lists; None stands where an item has fewer.
    width = max(len(accepted) for accepted in references)
    streams = [[accepted[i] if i < len(accepted) else None for accepted in references] for i in range(width)]
    value = float(metric.corpus_score(best, streams).score)
    return Score(name, value, str(metric.get_signature()))


def _percent_matched(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]], k: int) -> float:
    """% of items with one of the first k hypotheses equal to one of the references."""
    pairs = zip(hypotheses, references, strict=True)
    matched = sum(not set(accepted).isdisjoint(n_best[:k]) for n_best, accepted in pairs)
    return 100 * matched / len(hypotheses)


def _error_rate(best: Sequence[str], references: Sequence[Sequence[str]], unit: Unit) -> float:
    """% of edits per symbol of the reference, over the whole corpus; of several references the one of lowest rate."""
    cut = str.split if unit == "symbols" else list
    edits = length = 0
    for hypothesis, accepted in zip(best, references, strict=True):
        symbols = cut(hypothesis)
        candidates = [(edit_distance(symbols, cut(text)), len(cut(text))) for text in accepted]
        fewest, size = min(candidates, key=lambda each: each[0] / max(each[1], 1))
        edits += fewest
        length += size
    return 100 * edits / max(length, 1)


def _signature(computed: str) -> str:
    """Ours, in sacreBLEU's manner: `unit:symbols|refs:best|version:0.1.0`."""
    return f"{computed}|version:{__version__}"
