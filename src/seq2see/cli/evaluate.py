"""`seq2see evaluate`: score one or several runs on pairs, with the signature of each score, and compare them with other
runs.
"""

import contextlib
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see import storage
from seq2see.cli import options
from seq2see.cli.data import Downloads
from seq2see.cli.messages import echo, write_line
from seq2see.display.wording import columns, padded, translated, wrapped
from seq2see.distributed import ranks
from seq2see.errors import DataError, RunError, SettingError
from seq2see.machine import Group

if TYPE_CHECKING:
    from seq2see.decoding.hypothesis import Engine
    from seq2see.evaluation.evaluations import Evaluation
    from seq2see.evaluation.metrics import Scores
    from seq2see.run import Run
    from seq2see.text.corpora import Parts
    from seq2see.text.pair import Pair

_RUNS = "Run folder, or several runs of one system that differ only in their seed."
_AGAINST = (
    "Compare with this run; may be repeated for other seeds. A verdict (better, worse) needs enough runs, such as 4 on "
    "each side."
)
_REFERENCES = "File of further references, one line per pair; may be repeated."


def evaluate(
    folders: Annotated[list[str], typer.Argument(metavar="RUN", help=_RUNS)],
    pairs: options.PairsName,
    against: Annotated[list[str] | None, typer.Option(metavar="RUN", help=_AGAINST)] = None,
    references: Annotated[list[str] | None, typer.Option(metavar="FILE", help=_REFERENCES)] = None,
    beam: options.Beam = None,
    n_best: Annotated[
        int, typer.Option(min=1, metavar="K", help="Also score whether a reference is among the K best translations.")
    ] = 1,
    tokenize: Annotated[
        str,
        typer.Option(help="Tokenizer of BLEU: none, 13a, char, ko-mecab; auto: 13a, or char for text without spaces."),
    ] = "auto",
    format: options.Format = None,
    source_column: options.SourceColumn = None,
    target_column: options.TargetColumn = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    to: options.To = None,
    engine: options.EngineOption = "auto",
    precision: options.ScoringPrecisionOption = "float32",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="File for the translations, one per line.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --output if it exists.")] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Translate the sources of PAIRS and score the translations. Columns after the second are further references.

    The scores are also added to report.html in the run's folder.
    """
    if output and (len(folders) > 1 or against):
        raise SettingError("--output holds the translations of one run: leave the other runs out")
    if output:
        options.check_new(Path(output), force)
    from seq2see.text import corpora, downloads
    from seq2see.text.pair import Sides
    from seq2see.text.rows import ReadingOptions

    runs = [options.open_run(folder) for folder in (*folders, *(against or ()))]
    if against:
        _check_seeds(runs[: len(folders)])
        _check_seeds(runs[len(folders) :])
    for run in [run for run in runs if run.tags] or runs:  # a run of one direction may be compared with one of many
        run.tagged([], to)
    columns, languages = Sides(source_column, target_column), Sides(source_language, target_language)
    reading = ReadingOptions(format, columns, languages)

    def read() -> "tuple[Parts, list[Pair]]":
        with Downloads() as watch:
            found = corpora.for_scoring(pairs, reading, watch, bound=True)
        items = list(found)
        if not items:
            raise DataError(f"{pairs}: no usable pair (a pair needs text on both sides)")
        return found, _with_references(items, references or (), found.dropped)

    with ranks.joined() as group:
        scored, items = group.after_first(read)  # which may download it
        _tell(group, *scored.notes)
        engines = group.after_first(lambda: _engines(runs, engine, precision))
        evaluations = _evaluate(group, runs, engines, items, beam, n_best, tokenize, to)
        if not group.is_first:
            return
    name = f"{pairs} (test)" if pairs in downloads.names() else pairs
    found = {"set": name, "pairs": len(items), "dropped": scored.dropped} | _result(runs, evaluations, len(folders))
    if as_json:
        write_line(json.dumps(found, ensure_ascii=False))
    else:
        _print(found)
    for run, each in zip(runs, evaluations, strict=True):
        _add_to_report(run, name, each)
    if output:  # last: scores that are printed are not lost to a full disk
        lines = [result.text.replace("\n", " ") + "\n" for result in evaluations[0].results]
        with storage.output(Path(output)) as file:
            file.write_text("".join(lines), encoding="utf-8", errors="replace")


def _tell(group: Group, *notes: str) -> None:
    """Print notes to standard error, under torchrun only in the first process."""
    for note in notes if group.is_first else ():
        echo(note, err=True)


def _evaluate(
    group: Group,
    runs: "list[Run]",
    engines: "list[Engine]",
    items: "list[Pair]",
    beam: int | None,
    n_best: int,
    tokenize: str,
    to: str | None,
) -> "list[Evaluation]":
    """Translate and score the pairs with every run; error unit and default beam width are those of the first."""
    from seq2see.decoding.shared_engine import Shared
    from seq2see.evaluation.evaluations import error_unit

    beam, unit = beam or runs[0].settings.decoding.beam, error_unit(runs[0].settings)
    evaluations = []
    for run, engine in zip(runs, engines, strict=True):
        if len(runs) > 1:
            _tell(group, f"translating with {run.folder}")
        searching = engine if group.alone else Shared(engine, group)
        evaluations.append(run.evaluate(items, beam, n_best, tokenize, searching, unit, to if run.tags else None))
        if cut := sum(result.cut for result in evaluations[-1].results):
            limit = run.settings.decoding.max_source
            _tell(group, f"{_plural(cut, 'source')} longer than decoding.max_source = {limit} tokens: the rest was cut")
        if note := evaluations[-1].note:
            _tell(group, note)
    return evaluations


def _add_to_report(run: "Run", name: str, evaluation: "Evaluation") -> None:
    """Add the scores to the report of a finished run; a report that cannot be written is left unchanged."""
    from seq2see.evaluation import report

    how = f"{_plural(evaluation.pairs, 'pair')}, {_searched(evaluation.beam)}, {evaluation.engine}"
    how += f". {evaluation.note}" if evaluation.note else ""
    with contextlib.suppress(OSError, RunError):  # a folder that may only be read, a full disk
        if run.manifest.get("state") == "finished":
            report.add_scores(run.folder / "report.html", report.ScoredSet(name, how, evaluation.rows))


def _searched(beam: int) -> str:
    return f"beam {beam}" if beam > 1 else "greedy"


def _check_seeds(side: "list[Run]") -> None:
    """Raise an error if two runs of one side of a comparison were trained with the same seed, so that they are not
    independent.
    """
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
    """Return the same kind of engine for every run: torch if `auto` would choose different ones."""
    chosen = [run.engine(name, precision) for run in runs]
    if len({engine.name for engine in chosen}) > 1:
        return [run.engine("torch", precision) for run in runs]
    return chosen


def _with_references(items: "list[Pair]", files: Iterable[str], dropped: int) -> "list[Pair]":
    """Return the pairs with further references from files, one line per pair; an empty line adds none.

    Args:
        dropped: Number of pairs with an empty side that are not in `items`, for the error message.
    """
    from seq2see.text.rows import read_lines

    for file in files:
        lines = read_lines(Path(file))
        if len(lines) != len(items):
            why = f" ({dropped:,} pairs have an empty side and are left out: remove their lines)" if dropped else ""
            expected = f"expected {len(items):,}, one for each pair that is scored{why}"
            raise DataError(f"{file}: {_plural(len(lines), 'line')}, {expected}")
        items = [
            pair._replace(references=(*pair.references, line)) if line else pair
            for pair, line in zip(items, lines, strict=True)
        ]
    return items


def _result(runs: "list[Run]", evaluations: "list[Evaluation]", count: int) -> dict[str, Any]:
    """Return the data for --json: scores of the first `count` runs, and the comparison with the others, if any."""
    from seq2see.evaluation import compare

    first = evaluations[0]
    found: dict[str, Any] = {"engine": first.engine, "beam": first.beam, "unreachable": first.unreachable}
    scored = [(str(run.folder), each.scores) for run, each in zip(runs, evaluations, strict=True)]
    found |= _side(scored[:count])
    if count == len(runs):
        return found
    found["against"] = _side(scored[count:])
    differences = compare.compare([each for _, each in scored[:count]], [each for _, each in scored[count:]])
    keys = ("difference", "low", "high", "p", "verdict", "models", "detectable")
    found["differences"] = {each.name: {key: getattr(each, key) for key in keys} for each in differences}
    numbers = count, len(runs) - count
    found["comparison"] = {
        "about": "models" if 1 in numbers else "systems",
        "runs": numbers,
        "enough_runs": compare.enough_runs(*numbers),
        "smallest_p": compare.smallest_p(*numbers),
        "level": compare.LEVEL,
        "power": compare.POWER,
        "note": compare.explain(*numbers),
    }
    found["bootstrap"] = {"resamples": compare.RESAMPLES, "seed": compare.SEED, "interval": 0.95}
    return found


def _side(scored: "list[tuple[str, Scores]]") -> dict[str, Any]:
    """Return, for --json, the scores of one system (mean and standard deviation of its runs) and of each run."""
    scores = scored[0][1].as_dict()
    runs = [{"run": folder, "scores": {score.name: score.value for score in found}} for folder, found in scored]
    for name in (score.name for score in scored[0][1] if len(scored) > 1):
        values = [found[name].value for _, found in scored]
        scores[name] |= {"value": statistics.fmean(values), "deviation": statistics.stdev(values)}
    return {"scores": scores, "runs": runs}


def _print(found: dict[str, Any]) -> None:
    left_out = f" ({found['dropped']:,} dropped, a side was empty)" if found["dropped"] else ""
    scored = f"{_plural(found['pairs'], 'pair')} of {found['set']}{left_out}"
    echo(f"{scored}, {found['engine']}, {_searched(found['beam'])}")
    alone = len(found["runs"]) == 1 and "against" not in found
    if not alone:
        _print_runs([found, found["against"]] if "against" in found else [found])
        if "against" in found:
            _print_differences(found["differences"], found["comparison"]["note"])
        echo()
    for name, score in found["scores"].items():
        value = "-" if score["value"] is None else f"{score['value']:.2f}"
        about = score["signature"] or translated(f"does not apply: {score['reason']}")
        echo(f"{name:<11}{f'{value:>7}' if alone else ''}  {about}")


def _print_runs(sides: list[dict[str, Any]]) -> None:
    """Print a row for each run and a column for each score; below several runs of one system, mean and standard
    deviation.
    """
    names = [*sides[0]["runs"][0]["scores"]]
    rows: list[tuple[str, list[float]]] = []
    for letter, side in zip(("A  ", "B  ") if len(sides) > 1 else ("",), sides, strict=True):
        rows += [(f"{letter}{run['run']}", [*run["scores"].values()]) for run in side["runs"]]
        if len(side["runs"]) > 1:
            for title, key in (("mean", "value"), ("deviation", "deviation")):
                rows.append((f"{letter}{translated(title)}", [side["scores"][name][key] for name in names]))
    width = max(columns(title) for title, _ in rows)
    echo("\n" + " " * width + "".join(f"{name:>{max(9, len(name) + 2)}}" for name in names))
    for title, values in rows:
        cells = (f"{value:>{max(9, len(name) + 2)}.2f}" for name, value in zip(names, values, strict=True))
        echo(f"{padded(title, width)}{''.join(cells)}")


def _print_differences(differences: dict[str, dict[str, Any]], note: str) -> None:
    interval, detectable = (translated(title) for title in ("95 % interval", "detectable"))
    echo(f"\n{'':<11}{'A - B':>8}  {padded(interval, 15, right=True)}       p  {padded(detectable, 10, right=True)}")
    for name, each in differences.items():
        verdict = each["models"] or each["verdict"]
        if verdict in ("better", "worse"):
            verdict = f"{'these models: ' if each['models'] else ''}A is {verdict}"
        interval = f"{each['low']:+.2f} to {each['high']:+.2f}"
        detectable = translated("none") if each["detectable"] is None else f"{each['detectable']:.2f}"
        numbers = f"{each['difference']:>+8.2f}  {interval:>17}   {each['p']:.3f}  {padded(detectable, 10, right=True)}"
        echo(f"{name:<11}{numbers}   {translated(verdict)}")
    echo("\n".join(wrapped(translated(note), 100)))


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
