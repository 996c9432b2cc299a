"""The result of an evaluation: scores of a run on some pairs, and how they were measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from seq2see.config import Settings
from seq2see.decoding.translator import Result
from seq2see.display import notebook
from seq2see.evaluation import metrics
from seq2see.evaluation.metrics import Scores, Unit
from seq2see.text.pair import Pair
from seq2see.tokens import store
from seq2see.tokens.store import Tokenizers
from seq2see.tokens.tokenizers import KINDS


@dataclass(frozen=True)
class Evaluation:
    """The scores of a run on some pairs, and how they were measured."""

    pairs: int
    engine: str
    """Engine and precision: "ctranslate2 float32"."""
    beam: int
    scores: Scores
    results: list[Result]
    """The translations of each scored pair, in the order of the pairs."""
    unreachable: int = 0
    """Number of pairs none of whose references the target tokenizer can write; the score `exact` counts them wrong."""

    @property
    def note(self) -> str:
        """Return a sentence about references that the target tokenizer cannot write; empty if there are none."""
        if not self.unreachable:
            return ""
        share = 100 * self.unreachable / self.pairs
        return (
            f"{self.unreachable:,} of {self.pairs:,} references ({share:.1f} %) cannot be written with the target "
            "tokenizer (because of letter case, spaces or characters): the score exact counts them as wrong"
        )

    def _repr_html_(self) -> str:
        rows = [(name, "-" if value is None else value, about) for name, value, about in self.rows]
        return notebook.table(
            f"{self.pairs:,} pairs, {self.engine}, beam {self.beam}", ("score", "value", "signature"), rows
        )

    @property
    def rows(self) -> list[tuple[str, float | None, str]]:
        """Return name, value and signature of each score; if a score does not apply, None and the reason."""
        missing = [(name, None, f"does not apply: {reason}") for name, reason in self.scores.inapplicable.items()]
        return [*missing, *((score.name, score.value, score.signature) for score in self.scores)]


def measured(
    pairs: Sequence[Pair],
    results: list[Result],
    searched: tuple[str, int],
    tokenizers: Tokenizers,
    tokenize: str,
    unit: Unit,
    n_best: int,
) -> Evaluation:
    """Return the scores of translations, with engine and beam width in their signatures.

    Args:
        searched: name of the engine, and beam width.
        tokenize: the tokenizer of BLEU, as in `metrics.score`.
        unit: what the error rate counts, as in `metrics.score`.
        n_best: if above 1, also score whether a reference is among this many hypotheses.
    """
    engine, beam = searched
    hypotheses = [[each.text for each in result.translations] for result in results]
    references = [[pair.target, *pair.references] for pair in pairs]
    scores = metrics.score(hypotheses, references, tokenize, unit=unit, top_k=n_best)
    how = f"engine:{engine.replace(' ', '-')}|beam:{beam}"
    signed = tuple(replace(score, signature=f"{score.signature}|{how}") for score in scores)
    unreachable = store.unreachable(pairs, tokenizers)
    return Evaluation(len(pairs), engine, beam, replace(scores, scores=signed), results, unreachable)


def error_unit(settings: Settings) -> Unit:
    """Return what the error rate counts: "characters" if the target tokenizer splits text into them, else "symbols"."""
    return "characters" if KINDS[settings.data.target_tokenizer].counts_characters else "symbols"
