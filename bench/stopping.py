"""Compare the rules by which beam search stops: time, n-best scores, and agreement with CTranslate2.

    python -m bench.stopping RUN SOURCES [ROUNDS]

SOURCES has one sentence per line. The first 1,000 are translated in float32 on one thread, with the beam of the run and
n-best lists of that size. The two rules take turns in each round, and CPU seconds are printed beside wall seconds,
because a busy machine changes wall seconds more.
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

import seq2see
from seq2see.config import StopAgainst
from seq2see.decoding import ct2_engine, translator
from seq2see.decoding.hypothesis import Engine
from seq2see.decoding.translator import Result

SENTENCES = 1000
PATIENCES = (1.0, 2.0, 4.0)
"""Values of CTranslate2's `patience`: it stops when `patience * beam` hypotheses are finished."""
RULES: tuple[StopAgainst, ...] = ("best", "worst")
Lists = list[Result]


def main() -> None:
    torch.set_num_threads(1)
    run = seq2see.load(sys.argv[1])
    lines = Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()[:SENTENCES]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    beam = run.settings.decoding.beam

    def search(engine: Engine, rule: StopAgainst) -> Lists:
        settings = replace(run.settings, decoding=replace(run.settings.decoding, stop_against=rule))
        return translator.translate(engine, run.tokenizers, settings, lines, n_best=beam)

    ours = run.engine("torch", "float32")
    search(ours, "best")  # the first use of a library is slower
    found: dict[StopAgainst, Lists] = {}
    times: dict[StopAgainst, list[tuple[float, float]]] = {rule: [] for rule in RULES}
    for _ in range(rounds):
        for rule in RULES:
            found[rule], took = timed(lambda rule=rule: search(ours, rule))  # type: ignore[misc]
            times[rule].append(took)
    print(f"{len(lines):,} sentences, beam {beam}, {len(run.tokenizers.target):,} target tokens")
    for rule in RULES:
        cpu, wall = (statistics.median(column) for column in zip(*times[rule], strict=True))
        print(f"stop against the {rule}: {cpu:.2f} s CPU, {wall:.2f} s wall; {scores(found[rule])}")
    print(f"  {agreement(found['best'], found['worst'])}")
    for patience in PATIENCES:
        ct2_engine.PATIENCE, ct2_engine.FEW_WORDS = patience, sys.maxsize
        engine = run.engine("ctranslate2", "float32")
        theirs, (cpu, wall) = timed(lambda: search(engine, "worst"))  # noqa: B023
        print(f"ctranslate2, patience {patience:g}: {cpu:.2f} s CPU, {wall:.2f} s wall; {scores(theirs)}")
        for rule in RULES:
            print(f"  {rule}: {agreement(found[rule], theirs)}")


def timed(work: Callable[[], Lists]) -> tuple[Lists, tuple[float, float]]:
    """Return the result of `work`, and the CPU and wall seconds that it took."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    return result, (time.process_time() - cpu, time.perf_counter() - wall)


def scores(lists: Lists) -> str:
    """Describe the mean score of the best hypothesis, and of all hypotheses."""
    best = statistics.fmean(result.translations[0].score for result in lists)
    everyone = statistics.fmean(each.score for result in lists for each in result.translations)
    return f"mean score of the best hypothesis {best:.4f}, of the list {everyone:.4f}"


def agreement(ours: Lists, theirs: Lists) -> str:
    """Describe how many best hypotheses and lists have the same tokens, and which of those that differ score higher."""
    pairs = [(one.translations, other.translations) for one, other in zip(ours, theirs, strict=True)]
    same_best = sum(one[0].tokens == other[0].tokens for one, other in pairs)
    same_list = sum([each.tokens for each in one] == [each.tokens for each in other] for one, other in pairs)
    higher, lower = (
        sum(sign * (sum(each.score for each in other) - sum(each.score for each in one)) > 1e-4 for one, other in pairs)
        for sign in (1, -1)
    )
    best_higher, best_lower = (
        sum(sign * (other[0].score - one[0].score) > 1e-4 for one, other in pairs) for sign in (1, -1)
    )
    return (
        f"same best {same_best} (the second higher {best_higher}, lower {best_lower}), "
        f"same list {same_list} (the second higher {higher}, lower {lower})"
    )


if __name__ == "__main__":
    main()
