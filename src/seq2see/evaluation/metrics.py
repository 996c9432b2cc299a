"""Scores of translations, each with a signature that says how it was computed.

    name        better  what
    bleu        higher  sacreBLEU's BLEU of the whole corpus
    chrf        higher  sacreBLEU's chrF2: character n-grams, kinder to rich morphology
    ter         lower   sacreBLEU's TER: edits and shifts of words
    exact       higher  % of items whose best hypothesis equals a reference; 100 - exact is also called word error rate
    top_5       higher  % of items with a reference among the first five hypotheses, if the n-best lists have five
    error_rate  lower   edits per 100 symbols of the reference: phones, words, or characters, by `unit`

BLEU counts groups of four words: if no reference has four, it is 0 even for perfect translations. It then does not
apply, and is left out with the reason. References are compared as they are: `exact` counts an item as wrong if the
tokenizer of a run cannot write its references (`Evaluation.unreachable`), as any other tool would.

An item may have several references: the sacreBLEU scores treat them as sacreBLEU does, the others take the one that
fits best. Every score is a function of counts summed over the items, which `compare` resamples. sacreBLEU is imported
only when it is used, since that takes a quarter of a second.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal, get_args

from seq2see import __version__
from seq2see.display import notebook
from seq2see.display.wording import translated
from seq2see.errors import DataError, SettingError, nearest

Unit = Literal["symbols", "characters"]
TOKENIZERS = ("auto", "none", "13a", "char", "ko-mecab")
"""Tokenizers for BLEU that --tokenize accepts; `auto` is 13a, or char if the references have no spaces between
words.
"""
NAMES = ("bleu", "chrf", "ter", "exact", "top_k", "error_rate")
METRICS = {
    "loss": "validation loss",
    "exact": "exact match",
    "error_rate": "error rate",
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
}
"""Metrics of `training.metric`, and the name of each in the table that `train` prints."""


@dataclass(frozen=True)
class Score:
    """One score: its value, its name, and how it was computed."""

    name: str
    value: float
    signature: str
    counts: list[list[float]] = field(repr=False)
    """For each sentence, the counts that this score is computed from, such as matching n-grams, edits and lengths."""
    of_sums: Callable[[Sequence[float]], float] = field(repr=False, compare=False)
    """Function that computes the score of a corpus from the sums of `counts` over its sentences: most scores are not
    the mean of their values for single sentences.
    """


@dataclass(frozen=True)
class Scores:
    """All scores of one evaluation, in the order of `NAMES`."""

    scores: tuple[Score, ...]
    inapplicable: Mapping[str, str] = field(default_factory=dict)
    """Scores that do not apply to these references, by name, with the reason."""

    def __iter__(self) -> Iterator[Score]:
        return iter(self.scores)

    def __getitem__(self, name: str) -> Score:
        if name in self.inapplicable:
            raise DataError(f"{name} does not apply: {self.inapplicable[name]}")
        return {score.name: score for score in self.scores}[name]

    def _repr_html_(self) -> str:
        rows = [(score.name, score.value, score.signature) for score in self.scores]
        missing = [(name, "-", f"does not apply: {reason}") for name, reason in self.inapplicable.items()]
        return notebook.table(translated("Scores"), ("score", "value", "signature"), [*missing, *rows])

    def as_dict(self) -> dict[str, dict[str, float | str | None]]:
        """Return the scores for JSON: `{"bleu": {"value": 31.4, "signature": "nrefs:1|..."}, ...}`.

        A score that does not apply has neither value nor signature (None), but a reason.
        """
        missing: dict[str, dict[str, float | str | None]] = {
            name: {"value": None, "signature": None, "reason": reason} for name, reason in self.inapplicable.items()
        }
        return missing | {score.name: {"value": score.value, "signature": score.signature} for score in self.scores}


def score(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    tokenize: str = "auto",
    names: Sequence[str] | None = None,
    unit: Unit = "symbols",
    top_k: int = 1,
) -> Scores:
    """Score n-best lists against references.

    Args:
        hypotheses: for each item its n-best list, the best first, at least one.
        references: for each item its references, at least one; items may have different numbers of them.
        tokenize: the tokenizer of BLEU, one of `TOKENIZERS`. The other scores do not depend on it.
        names: which of `NAMES` to compute; None: all.
        unit: what the error rate counts: `symbols` (separated by white space: words, phones) or `characters`.
        top_k: number k of hypotheses in the score `top_<k>`; for 1 there is no such score, since it equals `exact`.
    """
    wanted = NAMES if names is None else tuple(names)
    _check(hypotheses, references, tokenize, wanted, unit)
    best = [n_best[0] for n_best in hypotheses]
    inapplicable = {}
    if "bleu" in wanted:
        tokenize = _words_by(tokenize, references)
        if reason := why_not_bleu(references, tokenize):
            inapplicable["bleu"] = reason
            wanted = tuple(name for name in wanted if name != "bleu")
    compute: dict[str, Callable[[], Score]] = {
        "exact": lambda: ratio("exact", "refs:any", _matches(hypotheses, references, 1)),
        "top_k": lambda: ratio(f"top_{top_k}", f"k:{top_k}|refs:any", _matches(hypotheses, references, top_k)),
        "error_rate": lambda: ratio("error_rate", f"unit:{unit}|refs:best", _edits(best, references, unit)),
    }
    found = [
        compute[name]() if name in compute else _by_sacrebleu(name, best, references, tokenize)
        for name in NAMES
        if name in wanted and (name != "top_k" or top_k > 1)
    ]
    return Scores(tuple(found), inapplicable)


def one(metric: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], unit: Unit = "symbols") -> float:
    """Return one score of best hypotheses, for validation; 0 if it does not apply to the references.

    `check_metric` refuses such a metric before a training. In a training that began without this check, all checkpoints
    then have the same score, and the validation loss selects the best.
    """
    scores = score([[text] for text in hypotheses], references, names=[metric], unit=unit)
    return 0.0 if metric in scores.inapplicable else scores[metric].value


def check_metric(metric: str, references: Sequence[Sequence[str]]) -> None:
    """Raise an error if the best model is to be chosen by BLEU, and BLEU does not apply to these references."""
    if metric == "bleu" and (reason := why_not_bleu(references)):
        raise SettingError(
            f"training.metric = 'bleu' does not apply: {reason}. Choose another: --metric exact, chrf or error_rate"
        )


def why_not_bleu(references: Sequence[Sequence[str]], tokenize: str = "auto") -> str:
    """Return why BLEU does not apply to these references; an empty text if it does."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=_words_by(tokenize, references))
    words = (len(metric.tokenizer(text).split()) for accepted in references for text in accepted)
    order = metric.max_ngram_order
    if any(count >= order for count in words):
        return ""
    return f"it counts groups of {order} words, and no target has as many"


def _words_by(tokenize: str, references: Sequence[Sequence[str]]) -> str:
    """Return `tokenize` or, if it is "auto", the name of the BLEU tokenizer that suits these references."""
    if tokenize != "auto":
        return tokenize
    from seq2see.doctor.characters import are_unspaced

    sample = [each[0] for each in references[:: max(1, len(references) // 1000)]]
    return "char" if are_unspaced(sample) else "13a"


def check_tokenizer(tokenize: str) -> None:
    """Raise an error if `tokenize` is no tokenizer for BLEU, or its library is not installed.

    It is called before the translation, which may take an hour.
    """
    if tokenize not in TOKENIZERS:
        raise SettingError(f"tokenize = {tokenize!r}: unknown. {nearest(tokenize, TOKENIZERS)}")
    if tokenize == "auto":
        return
    from sacrebleu.metrics.bleu import BLEU

    try:
        BLEU(tokenize=tokenize)
    except RuntimeError:  # MeCab is missing, the only tokenizer here that is not sacreBLEU's own
        advice = "Run: pip install 'sacrebleu[ko]'"
        raise SettingError(f"tokenize = {tokenize!r}: its library is not installed. {advice}") from None


def edit_distance(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the fewest insertions, deletions and substitutions that turn one sequence into the other (Levenshtein).

    Computed row by row: in row i, `above[j]` is the distance of `left[:i - 1]` to `right[:j]`.
    """
    if left == right:
        return 0
    above = list(range(len(right) + 1))
    for i, symbol in enumerate(left, start=1):
        row = [i]
        for j, other in enumerate(right, start=1):
            row.append(min(above[j - 1] + (symbol != other), above[j] + 1, row[j - 1] + 1))
        above = row
    return above[-1]


def _check(
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    tokenize: str,
    names: Sequence[str],
    unit: str,
) -> None:
    for name in names:
        if name not in NAMES:
            raise SettingError(f"unknown score '{name}'. {nearest(name, NAMES)}")
    if "bleu" in names:
        check_tokenizer(tokenize)
    if unit not in get_args(Unit):
        raise SettingError(f"unit = {unit!r}: unknown. {nearest(unit, get_args(Unit))}")
    if len(hypotheses) != len(references):
        raise DataError(f"{len(hypotheses)} translations but {len(references)} references: expected as many of each")
    if not hypotheses:
        raise DataError("no translations to score")
    for number, (n_best, accepted) in enumerate(zip(hypotheses, references, strict=True), start=1):
        if not n_best or not accepted:
            raise DataError(f"item {number}: no {'reference' if n_best else 'translation'}, expected at least one")


def _by_sacrebleu(name: str, best: Sequence[str], references: Sequence[Sequence[str]], tokenize: str) -> Score:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    # Without `force` BLEU logs a guess that a text with spaces before full stops was split into words.
    metric: Any = BLEU(tokenize=tokenize, force=True) if name == "bleu" else {"chrf": CHRF, "ter": TER}[name]()
    streams = [*zip_longest(*references)]  # one for each place in the lists; None where an item has fewer references
    counts = metric._extract_corpus_statistics(best, streams)  # what its own significance tests work on

    def of_sums(sums: Sequence[float]) -> float:
        return float(metric._compute_score_from_stats(sums).score)

    return Score(name, of_sums(_sums(counts)), str(metric.get_signature()), counts, of_sums)


def ratio(name: str, computed: str, counts: list[list[float]]) -> Score:
    """Return a score that is the ratio, in %, of the sums of two counts per item; its signature is `computed` and the
    version, as in `refs:any|version:0.1.0`.
    """
    return Score(name, _percent(_sums(counts)), f"{computed}|version:{__version__}", counts, _percent)


def _sums(counts: list[list[float]]) -> list[float]:
    return [sum(column) for column in zip(*counts, strict=True)]


def _percent(sums: Sequence[float]) -> float:
    part, whole = sums
    return 100 * part / max(whole, 1)


def _matches(hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]], k: int) -> list[list[float]]:
    """Return for each item [1 if one of the first k hypotheses equals a reference, else 0; and 1]."""
    pairs = zip(hypotheses, references, strict=True)
    return [[not set(accepted).isdisjoint(n_best[:k]), 1] for n_best, accepted in pairs]


def _edits(best: Sequence[str], references: Sequence[Sequence[str]], unit: Unit) -> list[list[float]]:
    """Return for each item the number of edits and the length of its reference; of several references, for the one with
    the lowest error rate.
    """
    cut = str.split if unit == "symbols" else list
    counts: list[list[float]] = []
    for hypothesis, accepted in zip(best, references, strict=True):
        symbols = cut(hypothesis)
        candidates = [(edit_distance(symbols, cut(text)), len(cut(text))) for text in accepted]
        fewest, size = min(candidates, key=lambda each: each[0] / max(each[1], 1))
        counts.append([fewest, size])
    return counts
