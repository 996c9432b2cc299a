"""`seq2see evaluate`: scores of a run on pairs, with signatures; of several runs, and against others."""

import contextlib
import json
import statistics
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see import storage
from seq2see.cli.data import Downloads
from seq2see.cli.messages import echo, write_line
from seq2see.cli.options import (
    Beam,
    Debug,
    EngineOption,
    Format,
    Json,
    PairsName,
    PrecisionOption,
    SourceColumn,
    SourceLanguage,
    TargetColumn,
    TargetLanguage,
    To,
    check_new,
)
from seq2see.distributed import ranks
from seq2see.errors import DataError, RunError, SettingError

if TYPE_CHECKING:
    from seq2see.decoding.hypothesis import Engine
    from seq2see.evaluation.compare import Difference
    from seq2see.evaluation.metrics import Scores
    from seq2see.run import Evaluation, Run
    from seq2see.text.corpora import Parts
    from seq2see.text.pair import Pair

Side = list[tuple[str, "Scores"]]
"""Runs by their folders, with what each scored: one system, trained once or with several seeds."""


def evaluate(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN", help="The folder that train wrote, or several: one system, trained with different seeds."
        ),
    ],
    pairs: PairsName,
    against: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN",
            help="Compare with this run; repeat for more seeds. A verdict needs at least 4 runs on each side.",
        ),
    ] = None,
    references: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Further references, a line for each pair; may be repeated."),
    ] = None,
    beam: Beam = None,
    n_best: Annotated[
        int, typer.Option(min=1, metavar="K", help="Score as well whether the right one is among the K best.")
    ] = 1,
    tokenize: Annotated[
        str, typer.Option(help="How BLEU cuts words: none, 13a, char or ko-mecab; auto: 13a, or char without blanks.")
    ] = "auto",
    format: Format = None,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    source_language: SourceLanguage = None,
    target_language: TargetLanguage = None,
    to: To = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = "float32",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the translations here, one a line.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --output replace a file.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Translate the sources of PAIRS and score the translations. Columns after the second are further references.

    The scores are also added to report.html in the run's folder.
    """
    if output and (len(folders) > 1 or against):
        raise SettingError("--output holds the translations of one run: leave the other runs out")
    if output:
        check_new(Path(output), force)
    from seq2see.evaluation import compare
    from seq2see.run import Shared, error_unit, load
    from seq2see.text import corpora, downloads
    from seq2see.text.pair import Sides
    from seq2see.text.rows import ReadingOptions

    runs = [load(folder) for folder in (*folders, *(against or ()))]
    if against:
        _check_seeds(runs[: len(folders)])
        _check_seeds(runs[len(folders) :])
    for run in [run for run in runs if run.tags] or runs:  # a run of one direction may be compared with one of many
        run.tagged([], to)
    columns, languages = Sides(source_column, target_column), Sides(source_language, target_language)
    options = ReadingOptions(format, columns, languages)

    def read() -> "tuple[Parts, list[Pair]]":
        with Downloads() as watch:
            found = corpora.for_scoring(pairs, options, watch, bound=True)
        items = list(found)
        for file in references or ():
            items = _with_references(items, Path(file), found.dropped)
        return found, items

    with ranks.joined() as group:
        scored, items = group.after_first(read)  # which may download it
        say = echo if group.is_first else lambda line, err: None
        for note in scored.notes:
            say(note, err=True)
        beam = beam or runs[0].settings.decoding.beam
        unit = error_unit(runs[0].settings)
        evaluations = []
        for run, chosen in zip(runs, group.after_first(lambda: _engines(runs, engine, precision)), strict=True):
            if len(runs) > 1:
                say(f"translating with {run.folder}", err=True)
            searching = chosen if group.alone else Shared(chosen, group)
            evaluations.append(run.evaluate(items, beam, n_best, tokenize, searching, unit, to if run.tags else None))
            if cut := sum(result.cut for result in evaluations[-1].results):
                limit = run.settings.decoding.max_source
                say(f"{_plural(cut, 'source')} longer than decoding.max_source = {limit} tokens: cut", err=True)
            if note := evaluations[-1].note:
                say(note, err=True)
        if not group.is_first:
            return
    sides = [(str(run.folder), each.scores) for run, each in zip(runs, evaluations, strict=True)]
    ours, theirs = sides[: len(folders)], sides[len(folders) :]
    differences = compare.compare([each for _, each in ours], [each for _, each in theirs]) if theirs else []
    name = f"{pairs} (test)" if pairs in downloads.names() else pairs
    (_print_json if as_json else _print)(name, scored.dropped, evaluations[0], ours, theirs, differences)
    for run, each in zip(runs, evaluations, strict=True):
        _add_to_report(run, name, each)
    if output:  # last: scores that are printed are not lost to a full disk
        lines = [result.text.replace("\n", " ") + "\n" for result in evaluations[0].results]
        with storage.output(Path(output)) as file:
            file.write_text("".join(lines), encoding="utf-8", errors="replace")


def _add_to_report(run: "Run", name: str, evaluation: "Evaluation") -> None:
    """Add the scores to the report of a finished run; one that cannot be written stays as it is."""
    from seq2see.evaluation import report

    how = f"{_plural(evaluation.pairs, 'pair')}, {_searched(evaluation)}, {evaluation.engine}"
    how += f". {evaluation.note}" if evaluation.note else ""
    with contextlib.suppress(OSError, RunError):  # a folder that may only be read, a full disk
        if run.manifest.get("state") == "finished":
            report.add_scores(run.folder / "report.html", report.ScoredSet(name, how, evaluation.rows))


def _searched(evaluation: "Evaluation") -> str:
    return f"beam {evaluation.beam}" if evaluation.beam > 1 else "greedy"


def _check_seeds(side: "list[Run]") -> None:
    """Refuse runs of one side that are no independent samples: of the same seed, or the same run twice."""
    seeds: dict[int, Path] = {}
    for run in side:
        seed = run.settings.training.seed
        if seed in seeds:
            raise SettingError(
                f"{seeds[seed]} and {run.folder} were both trained with training.seed = {seed}: the runs of one side "
                f"must differ by their seed. Train again with --set training.seed={max(seeds) + 1}, or leave one out"
            )
        seeds[seed] = run.folder


def _engines(runs: "list[Run]", name: str, precision: str | None) -> "list[Engine]":
    """The same engine for every run: our own where `auto` would not take the same for all."""
    chosen = [run.engine(name, precision) for run in runs]
    if len({engine.name for engine in chosen}) > 1:
        return [run.engine("torch", precision) for run in runs]
    return chosen


def _with_references(items: "list[Pair]", file: Path, dropped: int) -> "list[Pair]":
    """The pairs with the lines of a file as further references, one for each; an empty line is none."""
    from seq2see.text.rows import read_lines

    lines = read_lines(file)
    if len(lines) != len(items):
        why = f" ({dropped:,} with an empty side left out: take their lines out of all files)" if dropped else ""
        raise DataError(
            f"{file}: {_plural(len(lines), 'line')}, expected {len(items):,}, one for each pair that is scored{why}"
        )
    pairs = zip(items, lines, strict=True)
    return [pair._replace(references=(*pair.references, line)) if line else pair for pair, line in pairs]


def _print_json(
    name: str, dropped: int, evaluation: "Evaluation", ours: Side, theirs: Side, differences: "list[Difference]"
) -> None:
    from seq2see.evaluation import compare

    found: dict[str, Any] = {"set": name, "pairs": evaluation.pairs, "dropped": dropped}
    found |= {"engine": evaluation.engine, "beam": evaluation.beam, "unreachable": evaluation.unreachable}
    found |= _side_as_json(ours)
    if theirs:
        found["against"] = _side_as_json(theirs)
        keys = ("difference", "low", "high", "p", "verdict", "models", "detectable")
        found["differences"] = {each.name: {key: getattr(each, key) for key in keys} for each in differences}
        runs = len(ours), len(theirs)
        found["comparison"] = {
            "about": "models" if 1 in runs else "systems",
            "runs": runs,
            "enough_runs": compare.enough_runs(*runs),
            "smallest_p": compare.smallest_p(*runs),
            "level": compare.LEVEL,
            "power": compare.POWER,
            "note": compare.explain(*runs),
        }
        found["bootstrap"] = {"resamples": compare.RESAMPLES, "seed": compare.SEED, "interval": 0.95}
    write_line(json.dumps(found, ensure_ascii=False))


def _side_as_json(side: Side) -> dict[str, Any]:
    """The scores of a side, means over its runs where there are several, and those of each run."""
    scores = side[0][1].as_dict()
    if len(side) > 1:
        for name in (score.name for score in side[0][1]):
            scores[name] |= {"value": _mean(side, name), "deviation": _deviation(side, name)}
    runs = [{"run": folder, "scores": {score.name: score.value for score in found}} for folder, found in side]
    return {"scores": scores, "runs": runs}


def _mean(side: Side, name: str) -> float:
    return statistics.fmean(scores[name].value for _, scores in side)


def _deviation(side: Side, name: str) -> float:
    """Of the sample: how far another seed is likely to lie from the mean."""
    return statistics.stdev(scores[name].value for _, scores in side)


def _print(
    name: str, dropped: int, evaluation: "Evaluation", ours: Side, theirs: Side, differences: "list[Difference]"
) -> None:
    left_out = f" ({dropped:,} dropped, a side was empty)" if dropped else ""
    scored = f"{_plural(evaluation.pairs, 'pair')} of {name}{left_out}"
    echo(f"{scored}, {evaluation.engine}, {_searched(evaluation)}")
    alone = len(ours) + len(theirs) == 1
    if not alone:
        _print_runs(ours, theirs)
        if differences:
            _print_differences(differences, len(ours), len(theirs))
        echo()
    for missing, reason in ours[0][1].inapplicable.items():
        echo(f"{missing:<11}{'      -' if alone else ''}  does not apply: {reason}")
    for score in ours[0][1]:
        value = f"{score.value:>7.2f}" if alone else ""
        echo(f"{score.name:<11}{value}  {score.signature}")


def _print_runs(ours: Side, theirs: Side) -> None:
    """A row for each run, a column for each score; below the runs of a side their mean and deviation."""
    names = [score.name for score in ours[0][1]]
    rows: list[tuple[str, list[float]]] = []
    for letter, side in (("A  ", ours), ("B  ", theirs)) if theirs else (("", ours),):
        rows += [(f"{letter}{folder}", [score.value for score in scores]) for folder, scores in side]
        if len(side) > 1:
            rows.append((f"{letter}mean", [_mean(side, name) for name in names]))
            rows.append((f"{letter}deviation", [_deviation(side, name) for name in names]))
    width = max(len(title) for title, _ in rows)
    echo("\n" + " " * width + "".join(f"{name:>{max(9, len(name) + 2)}}" for name in names))
    for title, values in rows:
        cells = (f"{value:>{max(9, len(name) + 2)}.2f}" for name, value in zip(names, values, strict=True))
        echo(f"{title:<{width}}{''.join(cells)}")


def _print_differences(differences: "list[Difference]", ours: int, theirs: int) -> None:
    from seq2see.evaluation import compare

    echo(f"\n{'':<11}{'A - B':>8}    95 % interval       p  detectable")
    for each in differences:
        verdict: str = each.models or each.verdict
        if verdict in ("better", "worse"):
            verdict = f"{'these models: ' if each.models else ''}A is {verdict}"
        interval = f"{each.low:+.2f} to {each.high:+.2f}"
        detectable = "none" if each.detectable is None else f"{each.detectable:.2f}"
        numbers = f"{each.difference:>+8.2f}  {interval:>17}   {each.p:.3f}  {detectable:>10}"
        echo(f"{each.name:<11}{numbers}   {verdict}")
    echo(textwrap.fill(compare.explain(ours, theirs), 100))


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
