"""`seq2see draw`: pictures that do not need a sentence to translate."""

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see import config, special, storage
from seq2see.cli.data import Downloads
from seq2see.cli.messages import echo, progress, write_line
from seq2see.cli.options import Debug, Folder, Force, To, check_new, parse_assignments
from seq2see.errors import DataError, SettingError, nearest

if TYPE_CHECKING:
    from seq2see.run import Run
    from seq2see.text.pair import Pair

MOST_NEEDED = 5
"""Maximum number of attention heads that `draw heads` prints on the terminal: those without which the loss rises
most.
"""
Length = Annotated[int, typer.Option(min=1, max=5000, help="Number of positions.")]
Width = Annotated[int, typer.Option("--d-model", min=2, max=5000, help="Model width.")]
Out = Annotated[
    str | None,
    typer.Option(
        "-o", "--out", metavar="FILE", help="A .png, .svg, .pdf or .html file. Default: named after the picture."
    ),
]
Numbers = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON; draw only with --out.")]


def draw_waves(
    length: Length = 50,
    d_model: Width = 128,
    out: Out = None,
    force: Force = False,
    as_json: Numbers = False,
    debug: Debug = False,
) -> None:
    """Draw the sinusoidal positional encoding: sines and cosines that distinguish positions (paper, section 3.5)."""
    path = _place(out, "waves", as_json, force)
    from seq2see.pictures import textbook

    numbers = {"length": length, "d_model": d_model, "waves": textbook.waves(length, d_model)}
    _show(path, as_json, numbers, lambda path: textbook.draw_waves(length, d_model, path))


def draw_dot_products(
    length: Length = 50,
    d_model: Width = 128,
    out: Out = None,
    force: Force = False,
    as_json: Numbers = False,
    debug: Debug = False,
) -> None:
    """Draw the dot products of the positional encodings of every two positions, which depend only on their distance."""
    path = _place(out, "dot-products", as_json, force)
    from seq2see.pictures import textbook

    numbers = {"length": length, "d_model": d_model, "dot_products": textbook.dot_products(length, d_model)}
    _show(path, as_json, numbers, lambda path: textbook.draw_dot_products(length, d_model, path))


def draw_masks(
    tokens: Annotated[
        list[str] | None, typer.Argument(help="Tokens, where 0 or <pad> is padding. Default: 1 2 0 4 5.")
    ] = None,
    out: Out = None,
    force: Force = False,
    as_json: Numbers = False,
    debug: Debug = False,
) -> None:
    """Draw the padding mask and the look-ahead mask: which token may attend to which."""
    words = tokens or ["1", "2", "0", "4", "5"]
    if len(words) > 100:
        raise SettingError(f"{len(words)} tokens: at most 100 fit into a readable picture")
    path = _place(out, "masks", as_json, force)
    from seq2see.pictures import textbook

    padding = [word in ("0", special.SPELLINGS[special.PAD]) for word in words]
    keep_padding, keep_past = textbook.masks(padding)
    numbers = {"tokens": words, "padding": keep_padding, "look_ahead": keep_past}
    _show(path, as_json, numbers, lambda path: textbook.draw_masks(words, padding, path))


def draw_warm_up(
    d_model: Annotated[
        list[int] | None,
        typer.Option("--d-model", min=1, help="Model width; may be repeated. Default: 128, 256, 512."),
    ] = None,
    warmup_steps: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Number of warm-up steps; may be repeated. Default: 4000, 8000."),
    ] = None,
    max_steps: Annotated[int, typer.Option(min=2, max=10_000_000, help="Number of training steps to draw.")] = 20_000,
    out: Out = None,
    force: Force = False,
    as_json: Numbers = False,
    debug: Debug = False,
) -> None:
    """Draw the learning rate of the paper (section 5.3), for each model width and number of warm-up steps."""
    widths, lengths = dict.fromkeys(d_model or [128, 256, 512]), dict.fromkeys(warmup_steps or [4000, 8000])
    choices = [(width, length) for width in widths for length in lengths]
    if len(choices) > 8:
        raise SettingError(f"{len(choices)} curves (--d-model x --warmup-steps): draw at most 8 in a picture")
    path = _place(out, "warm-up", as_json, force)
    from seq2see.pictures import textbook
    from seq2see.training.schedule import noam

    curves: list[dict[str, Any]] = []
    for width, warm in choices:
        steps = textbook.steps_to_draw(warm, max_steps)
        curves.append({"d_model": width, "warmup_steps": warm, "peak": noam(warm, width, warm)})
        curves[-1] |= {"steps": steps, "rates": [noam(step, width, warm) for step in steps]}
    _show(path, as_json, {"curves": curves}, lambda path: textbook.draw_warm_up(choices, max_steps, path))


def draw_architecture(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help=f"A run folder, or a preset: {', '.join(config.PRESETS)}.")
    ] = "paper-base",
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change a setting of the preset; may be repeated."),
    ] = None,
    out: Out = None,
    force: Force = False,
    as_json: Numbers = False,
    debug: Debug = False,
) -> None:
    """Draw the architecture of a model: every stage, the shape of its output, and its number of parameters."""
    settings, sizes, title = _plan_of(model, assignments or [])
    path = _place(out, "architecture", as_json, force)
    from seq2see.pictures import architecture

    plan = architecture.plan(settings.model, *sizes)
    numbers = {
        "model": title,
        "parameters": architecture.count_parameters(plan),
        "steps": [asdict(stage) for stage in plan],
    }
    _show(path, as_json, numbers, lambda path: architecture.draw(plan, title, path))


def draw_curves(
    folder: Folder,
    out: Out = None,
    force: Force = False,
    debug: Debug = False,
) -> None:
    """Draw the training curves of a run: loss, scores and learning rate by step (numbers: RUN/metrics.jsonl)."""
    storage.read_manifest(Path(folder))
    path = _place(out, "curves", False, force)
    assert path is not None
    from seq2see.pictures import curves
    from seq2see.training import journal

    rows = [row for row in journal.read(Path(folder)) if row.get("what", "model") == "model"]
    if not curves.curves(rows, path, f"{Path(folder).resolve().name}: how it learned"):
        raise DataError(f"{folder}/metrics.jsonl: nothing to draw yet; train for a few steps first")
    _show(path, False, {})


PairsToMeasure = Annotated[
    str | None,
    typer.Argument(
        metavar="PAIRS", help="A file or the name of a corpus, as for evaluate. Default: the validation pairs."
    ),
]


def draw_heads(
    folder: Folder,
    pairs: PairsToMeasure = None,
    limit: Annotated[
        int,
        typer.Option(
            min=1, help="Maximum number of pairs, from the first on; all are translated again without each head."
        ),
    ] = 100,
    to: To = None,
    out: Out = None,
    force: Force = False,
    as_json: Numbers = False,
    debug: Debug = False,
) -> None:
    """Draw the attention heads of a run: how much the loss rises without each head, and where it attends."""
    path = _place(out, "heads", as_json, force)
    from seq2see.run import load

    run = load(folder)
    run.tagged([], to)  # a slip in --to need not wait for a download
    name, chosen = _chosen(run, pairs, limit, "draw heads")
    with progress() as run.watch:
        statistics, worth = run.head_statistics(chosen, to), run.head_worth(chosen, to=to)
    from seq2see.pictures import translations

    title = f"{run.folder.resolve().name}: what each head is for"
    numbers = {"set": name, "metric": run.metric, "worth": worth.json(), "statistics": statistics.json()}
    _show(path, as_json, numbers, lambda path: translations.head_worth(worth, statistics, run.metric, title, path))
    if as_json:
        return
    whole = worth.whole
    echo(f"pairs: {worth.pairs:,} of {name}; with all heads: loss {whole.loss:.3f}, {run.metric} {whole.score:.2f}")
    for each in sorted(worth.without, key=lambda each: -each.loss)[:MOST_NEEDED]:
        (head,) = each.heads
        lost = (
            f"loss {each.loss - whole.loss:+.3f}, {run.metric} {each.score:.2f}, {each.changed:.0%} of outputs changed"
        )
        echo(f"without {head.place} layer {head.layer + 1} head {head.head + 1}: {lost}")


def draw_pruning(
    folder: Folder,
    pairs: PairsToMeasure = None,
    limit: Annotated[
        int,
        typer.Option(
            min=2, help="Maximum number of pairs, from the first on; half rank the heads, half measure the curves."
        ),
    ] = 200,
    orders: Annotated[
        int, typer.Option(min=0, max=20, help="Number of random orders of removing heads, for comparison.")
    ] = 3,
    points: Annotated[
        int,
        typer.Option(
            min=1,
            max=1000,
            help="Maximum number of points of a curve after its first; for each, half of the pairs are translated.",
        ),
    ] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random orders.")] = 1,
    to: To = None,
    out: Out = None,
    force: Force = False,
    as_json: Numbers = False,
    debug: Debug = False,
) -> None:
    """Draw head pruning curves: loss and score while heads are removed, first those that raise the loss least."""
    path = _place(out, "pruning", as_json, force)
    from seq2see.run import load

    run = load(folder)
    run.tagged([], to)
    name, chosen = _chosen(run, pairs, limit, "draw pruning")
    with progress() as run.watch:
        found = run.prune_heads(chosen, to=to, seed=seed, orders=orders, points=points)
    from seq2see.pictures import curves

    title = f"{run.folder.resolve().name}: heads removed one after the other"
    _show(path, as_json, {"set": name, **found.json()}, lambda path: curves.pruning(found, title, path))
    if as_json:
        return
    whole = found.curves[0]
    echo(
        f"pairs: {found.pairs:,} of {name}; with all heads: loss {whole.loss[0]:.3f}, {run.metric} {whole.score[0]:.2f}"
    )
    for part in found.parts:
        own, others = found.curve(part), [str(each.removable) for each in found.random(part)]
        line = (
            f"{part}: {own.removable} of {len(own.heads)} heads can be removed before the loss rises by more than 10 %"
        )
        echo(f"{line}; in random order: {', '.join(others)}" if others else line)


def _chosen(run: "Run", pairs: str | None, limit: int, command: str) -> "tuple[str, list[Pair]]":
    """Return the name and the first `limit` pairs of `pairs` (a file or corpus), or if None, of the validation set."""
    if pairs is None:
        name, chosen = "validation", run.validation_pairs[:limit]
    else:
        from seq2see.text import corpora

        with Downloads() as watch:
            name, chosen = pairs, list(islice(corpora.for_scoring(pairs, watch=watch), limit))
    if not chosen:
        raise DataError(
            f"{pairs or f'{run.folder}/validation.jsonl'}: no usable pair. Name a file: seq2see {command} RUN PAIRS"
        )
    return name, chosen


def draw_word(
    folder: Folder,
    word: Annotated[str, typer.Argument(help="A word that occurs in both sentences.")],
    first: Annotated[str, typer.Argument(help="A source sentence that contains WORD.")],
    second: Annotated[str, typer.Argument(help="Another source sentence that contains WORD.")],
    to: To = None,
    out: Out = None,
    force: Force = False,
    as_json: Numbers = False,
    debug: Debug = False,
) -> None:
    """Draw one word in two contexts: where it attends in the encoder, and how similar its vectors are in each layer."""
    path = _place(out, "word", as_json, force)
    from seq2see.run import load

    run = load(folder)
    if "encoder" not in run.settings.model.attention:
        raise SettingError(f"{folder}: a model without self-attention in the encoder; there is nothing to draw")
    with progress() as run.watch:
        found = run.word_in_contexts(word, first, second, to)
    from seq2see.pictures import sublayers

    _show(path, as_json, found.json(), lambda path: sublayers.word(found, path))


def _plan_of(model: str, assignments: list[str]) -> tuple[config.Settings, tuple[int, int], str]:
    """Return the settings, the two vocabulary sizes and the name of a preset (changed by --set) or of a trained run."""
    if model in config.PRESETS:
        settings = config.resolve(config.preset(model), parse_assignments(assignments))
        data = settings.data
        both = (data.source_vocabulary, data.source_vocabulary if data.shared else data.target_vocabulary)
        return settings, both, " ".join([model, *assignments])
    if not Path(model).is_dir():
        raise SettingError(f"{model}: neither a run folder nor a preset. {nearest(model, config.PRESETS)}")
    if assignments:
        raise SettingError("--set applies to presets only; a run is drawn as it was trained. Leave --set out")
    from seq2see.tokens.store import Tokenizers

    storage.read_manifest(Path(model))
    return config.read_settings(Path(model)), Tokenizers.load(Path(model)).sizes, Path(model).resolve().name


def _place(out: str | None, name: str, as_json: bool, force: bool) -> Path | None:
    """Return the path of the picture, by default `name`.png, or None for --json without --out; raise an error if a file
    cannot be drawn there.
    """
    if out is None and as_json:
        return None
    path = Path(out or f"{name}.png")
    check_new(path, force)
    from seq2see.pictures import drawing

    drawing.check_suffix(path)
    return path


def _show(
    path: Path | None, as_json: bool, numbers: dict[str, Any], draw: Callable[[Path], str | None] = lambda path: None
) -> None:
    """Draw the picture if there is a path, and print the path and the note that `draw` returns to standard error; with
    --json, print the numbers.
    """
    note = draw(path) if path else None
    for line in (path, note):
        if line:
            echo(line, err=True)
    if as_json:
        write_line(json.dumps(numbers, ensure_ascii=False, default=lambda array: array.tolist()))
