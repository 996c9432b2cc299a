"""`seq2see look`: show the inside of one translation, as a page or as a picture."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see import storage
from seq2see.cli.messages import echo, progress, write_line
from seq2see.cli.options import Debug, Folder, Force, To, check_new, open_run
from seq2see.config import Place
from seq2see.display.wording import translated
from seq2see.errors import DataError, SettingError, TooLongError, nearest

if TYPE_CHECKING:
    from seq2see.run import Run

PLACES = {"cross": "cross attention", "encoder": "encoder attention", "decoder": "decoder self-attention"}
SUBLAYERS = ("scores", "merge", "residual")
"""Names of the pictures (--picture) of one attention sub-layer; without --place, that of the encoder's
self-attention.
"""
PICTURES: dict[str, tuple[str, ...]] = {
    "attention": ("--place", "--layer"),
    "heads": ("--place",),
    "alignment": (),
    "layers": (),
    "beam": (),
    "scores": ("--place", "--layer", "--head"),
    "merge": ("--place", "--layer"),
    "residual": ("--place", "--layer"),
}
"""Values of --picture, and for each the options that apply to it."""


def look(
    folder: Folder,
    sentence: Annotated[str, typer.Argument(help="Source sentence to translate and explain.")],
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            "--out",
            metavar="FILE",
            help="Page with everything (.html), or one picture (.png, .svg, .pdf). "
            "Default: look.html, or the name of the picture.",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Explain this translation instead of the model's own.")
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Show a second run beside this one, and where their outputs differ."),
    ] = None,
    picture: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"Which picture: {', '.join(PICTURES)}. Default: attention."),
    ] = None,
    place: Annotated[
        str | None,
        typer.Option(
            help="Attention to draw: cross, encoder or decoder. Default: cross; encoder for scores, merge and residual."
        ),
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Layer to draw, counted from 1. Default: 0, the last.")] = None,
    head: Annotated[int | None, typer.Option(help="Head of --picture scores, counted from 1. Default: 1.")] = None,
    to: To = None,
    force: Force = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the contents of the page as JSON instead of writing a file.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Translate a sentence and show everything that happened inside: tokens, every head of every layer, the beam."""
    path = Path(output or (f"{picture}.png" if picture else "look.html"))
    as_page = as_json or (path.suffix.lower() == ".html" and picture is None)
    chosen = {"--place": place, "--layer": layer, "--head": head}
    if as_json and (output, picture, *chosen.values()) != (None,) * 5:
        raise SettingError(
            "--json prints all that a page shows: leave --output, --picture, --place, --layer and --head out"
        )
    if beside is not None and not as_page:
        raise SettingError(
            "--beside shows two runs on a page: leave --picture out, and write to a file that ends in .html"
        )
    _check(sentence, target, picture, chosen, as_page)
    if not as_json:
        check_new(path, force)
    if not as_page:
        from seq2see.pictures import drawing

        drawing.check_suffix(path)
    run, asked = open_run(folder), (sentence, to, target)
    if as_page:
        other = None if beside is None else open_run(beside)
        translations, notes, parts, text = _two_runs(run, other, asked) if other else _one_run(run, asked)
        if as_json:
            write_line(json.dumps(parts, ensure_ascii=False))
        else:
            with storage.output(path) as file:
                file.write_text(text, encoding="utf-8")
            for line in translations:
                write_line(line)
            notes = [*notes, f"open in a browser: {path}"]
    else:
        if picture in SUBLAYERS:
            notes = _draw_sublayer(run, asked, picture, chosen, path)
        else:
            notes = _draw(run, sentence, to, target, picture or "attention", place, layer or 0, path)
    for line in notes:
        echo(line, err=True)


Asked = tuple[str, str | None, str | None]
"""The sentence, the target language (--to), and the translation that the user gave (--target); None if not given."""
Shown = tuple[list[str], list[str], dict[str, Any], str]
"""Translations, notes for the user, the data of the page by name, and the page as HTML."""


def _one_run(run: "Run", asked: Asked) -> Shown:
    """Return the page of one run, with translation and notes."""
    from seq2see.look import page

    try:
        with progress() as run.watch:
            parts = page.gather(run, *asked)
    except TooLongError as problem:
        raise DataError(f"{problem}, or draw a picture: -o FILE.png") from None
    return [parts["summary"]["translation"]], parts["summary"]["notes"], parts, page.render(parts)


def _two_runs(run: "Run", other: "Run", asked: Asked) -> Shown:
    """Return the page of two runs, with translations and notes."""
    from seq2see.look import beside

    with progress() as watch:
        run.watch = other.watch = watch
        parts = beside.gather(run, other, *asked)
    both = parts["comparison"]
    notes = [
        f"{name}: {note}"
        for letter, name in zip(beside.LETTERS, both["runs"], strict=True)
        for note in parts[f"{letter}/summary"]["notes"]
    ]
    common = both["common"].strip()
    notes.append(
        "both outputs are the same"
        if both["difference"] is None
        else f"the outputs first differ after '{common}'"
        if common
        else "the outputs differ from the first token on"
    )
    return list(both["translations"]), notes, parts, beside.render(parts)


def _check(
    sentence: str, target: str | None, picture: str | None, chosen: dict[str, str | int | None], as_page: bool
) -> None:
    """Raise an error for invalid arguments or options that exclude each other, before slow imports."""
    place, layer, head = chosen.values()
    for option, name, known in (("--place", place, PLACES), ("--picture", picture, PICTURES)):
        if name is not None and str(name) not in known:
            raise SettingError(f"{option} {name}: unknown. {nearest(str(name), known)}")
    if isinstance(layer, int) and layer < 0:
        raise SettingError(f"--layer {layer}: layers are counted from 1; 0 is the last")
    if isinstance(head, int) and head < 1:
        raise SettingError(f"--head {head}: heads are counted from 1")
    if not sentence.strip():
        raise SettingError("the sentence is empty: there is nothing to explain")
    if target is not None and not target.strip():
        raise SettingError("--target is empty: leave it out, or give a translation")
    if picture == "beam" and target is not None:
        raise SettingError("--picture beam: with --target there is no beam search to draw. Leave one of them out")
    drawn = picture or "attention"
    for option, value in chosen.items():
        if as_page and value is not None:
            raise SettingError(
                f"{option} {value}: for pictures only, a page shows everything. To draw a picture, add: -o FILE.png"
            )
        if value is not None and option not in PICTURES[drawn]:
            raise SettingError(f"{option} {value}: does not apply to --picture {drawn}. Leave it out")


def _draw(
    run: "Run",
    sentence: str,
    to: str | None,
    target: str | None,
    picture: str,
    place: str | None,
    layer: int,
    path: Path,
) -> list[str]:
    """Draw one picture of a translation to a file, print the translation, and return notes for the user."""
    from seq2see.pictures import labels, translations

    there = run.settings.model.attention
    if picture in ("attention", "heads", "alignment"):
        run.need_attention(f"{picture} to draw: choose --picture layers or beam")
    if picture in ("attention", "heads") and (place or "cross") not in there:
        raise SettingError(f"--place {place}: {run.folder} has {' and '.join(there)} attention only")
    place = place or "cross"
    with progress() as run.watch:
        seen = run.look(sentence, to, target)
    layers, rows, columns, names = {
        "cross": (seen.cross, seen.target_tokens, seen.source_tokens, ("output", "input")),
        "encoder": (seen.encoder, seen.source_tokens, seen.source_tokens, ("input", "input")),
        "decoder": (seen.decoder, seen.input_tokens, seen.input_tokens, ("output", "output")),
    }[place]
    if layer > len(layers):
        raise SettingError(f"--layer {layer}: the layers are numbered from 1 to {len(layers)}")
    title = labels.arrow(_shortened(seen.source), _shortened(seen.translation))
    number = layer or len(layers)
    match picture:
        case "heads":
            drawn, where = f"all heads of {place} attention", f"{PLACES[place]}, every layer and head"
            note = translations.heads(layers, rows, columns, title, path, where)
        case "alignment":
            drawn, note = picture, translations.alignment(seen, title, path)
        case "layers":
            drawn = "predictions of each layer"
            note = translations.layer_words(seen.layers, seen.target_tokens, title, path)
        case "beam":
            drawn, note = "the beam search", translations.beam(seen.beam, title, path)
        case _:
            drawn, where = f"{place} attention of layer {number}", f"{PLACES[place]}, layer {number} of {len(layers)}"
            note = translations.attention(layers[number - 1], rows, columns, title, path, where, *names)
    write_line(seen.translation)
    return [*seen.notes, f"{translated(drawn)}: {path}", *([note] if note else [])]


def _draw_sublayer(
    run: "Run",
    asked: Asked,
    picture: str,
    chosen: dict[str, Any],
    path: Path,
) -> list[str]:
    """Draw one picture of an attention sub-layer to a file, print the translation, and return notes for the user."""
    from seq2see.pictures import labels, sublayers

    place: Place = chosen["--place"] or "encoder"
    layers = run.settings.model.encoder_layers
    if place != "encoder":
        layers = run.settings.model.decoder_layers
    number, head = chosen["--layer"] or layers, chosen["--head"] or 1
    if number > layers:
        raise SettingError(f"--layer {number}: the layers are numbered from 1 to {layers}")
    if head > run.settings.model.heads:
        raise SettingError(f"--head {head}: the heads are numbered from 1 to {run.settings.model.heads}")
    sentence, to, target = asked
    reading = run.read(sentence, to, target)
    seen = run.sublayer(sentence, place, number - 1, to, reading.translation)
    title = labels.arrow(_shortened(reading.source), _shortened(reading.translation))
    match picture:
        case "scores":
            note = sublayers.scores(seen, head - 1, title, path)
        case "merge":
            note = sublayers.merge(seen, title, path)
        case _:
            note = sublayers.residual(seen, title, path)
    write_line(reading.translation)
    return [*reading.notes, f"{picture} of {PLACES[place]}, layer {number}: {path}", *([note] if note else [])]


def _shortened(text: str) -> str:
    """Return a text for the title of a picture: of more than 160 characters only the beginning, cut at a space if
    possible.
    """
    begin = text[:159]
    return text if len(text) <= 160 else f"{begin[: begin.rfind(' ', 120)].rstrip()}…"
