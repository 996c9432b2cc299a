"""`seq2see translate`: lines in, lines out, one for each."""

import json
import select
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see import special
from seq2see.cli.messages import echo, write_line
from seq2see.cli.options import (
    Beam,
    Debug,
    EngineOption,
    Folder,
    Json,
    NBest,
    PrecisionOption,
    Sample,
    Seed,
    Temperature,
    To,
    TopK,
    TopP,
    pick_engine,
)
from seq2see.cli.progress import progress
from seq2see.distributed import ranks
from seq2see.errors import DataError, SettingError
from seq2see.text import rows

if TYPE_CHECKING:
    from seq2see.decoding.translator import Result
    from seq2see.lens.alignment import Alignment
    from seq2see.run import Run

AT_ONCE = 2000
"""Lines read before they are translated together: enough to batch well, few enough that output keeps coming."""


def translate(
    folder: Folder,
    to: To = None,
    beam: Beam = None,
    n_best: NBest = 1,
    prefix: Annotated[str | None, typer.Option(help="Every translation begins with this text.")] = None,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="After each translation a tab and the words it comes from: input-output, from 0 (Pharaoh format); "
            "with --json also by characters.",
        ),
    ] = False,
    sample: Sample = False,
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Translate standard input to standard output, line by line."""
    if sample and n_best > 1:
        raise SettingError("--sample draws one translation of a line: leave --n-best out")
    if sample and ranks.from_torchrun()[1] > 1:
        raise SettingError("--sample draws in one process: start it without torchrun")
    from seq2see.run import Shared, load

    run = load(folder)
    if engine == "auto" and prefix:  # the engines count forced words differently in a score: ours like any others
        engine = "torch"
    run.tagged([], to)  # a slip in --to need not wait for a line
    if alignments:
        run.need_attention("alignments")
    choose = partial(
        pick_engine,
        run,
        engine,
        precision,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    with ranks.joined() as group:
        chosen = group.after_first(choose)  # which may convert the model, and keep it
        searching = chosen if group.alone else Shared(chosen, group)
        first = 1
        blocks = _blocks(AT_ONCE * group.world)
        while block := group.first_does(lambda: next(blocks, None)):
            prefixes = None if prefix is None else [prefix] * len(block)
            results = run.search(block, beam, n_best, prefixes, searching, to)
            if group.is_first:
                with progress() as run.watch:
                    aligned = run.align(block, results, to) if alignments else [None] * len(block)
                if alignments and first == 1 and run.alignment_method.is_weak:
                    echo(f"alignments are made {run.alignment_method.in_words}", err=True)
                _write(run, block, results, aligned, first, n_best, as_json)
            first += len(block)


def _write(
    run: "Run",
    block: list[str],
    results: "list[Result]",
    aligned: "list[list[Alignment]] | list[None]",
    first: int,
    n_best: int,
    as_json: bool,
) -> None:
    """A block of answers in order, and what is to be said of single lines."""
    for number, (line, result, links) in enumerate(zip(block, results, aligned, strict=True), start=first):
        _print(number, line, result, links, n_best, as_json)
        if len(result.source) > 1 and set(result.source[:-1]) == {special.UNKNOWN}:
            echo(f"line {number}: nothing in it is known to the model, the answer is a guess", err=True)
        if result.cut:
            limit = run.settings.decoding.max_source
            echo(f"line {number}: longer than decoding.max_source = {limit} tokens, the rest was cut", err=True)
    sys.stdout.flush()


def _blocks(size: int) -> Iterator[list[str]]:
    """Lines in blocks, ended early where the input pauses: a program that waits for each answer gets it."""
    block: list[str] = []
    characters = 0
    try:
        for line in read_lines():
            if line is not PAUSE:
                block.append(line)
                characters += len(line)
            if block and (line is PAUSE or len(block) == size or characters > rows.LONGEST_LINE):
                yield block
                block, characters = [], 0
    except DataError:  # those before it are still translated
        if block:
            yield block
        raise
    if block:
        yield block


def read_lines() -> Iterator[str]:
    """Lines of standard input, and `PAUSE` where no more has come yet.

    They end at a line feed and nowhere else, so that output lines match input lines whatever they contain.
    """
    number = size = 0
    rest: list[bytes] = []  # of a line whose end has not come yet
    while chunk := _read():
        *whole, last = chunk.split(b"\n")
        for line in whole:
            number += 1
            yield _decoded(b"".join([*rest, line]), number)
            rest, size = [], 0
        rest.append(last)
        size += len(last)
        if size > rows.LONGEST_LINE:
            raise rows.too_long("standard input", number + 1)
        if _pauses():
            yield PAUSE
    if size:
        yield _decoded(b"".join(rest), number + 1)


PAUSE = "\n"
"""No line contains it."""


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(
            f"standard input, line {number}: not UTF-8. Convert the input, for example with iconv"
        ) from None


def _read() -> bytes:
    """What is there of standard input, at least a byte, or nothing at its end."""
    return sys.stdin.buffer.read1(1 << 16)  # type: ignore[union-attr, no-any-return]


def _pauses() -> bool:
    """Whether no more input has come for a moment; never where that cannot be asked (a file does not pause)."""
    try:
        return not select.select([sys.stdin.buffer.fileno()], [], [], 0.02)[0]
    except (OSError, ValueError):
        return False


def _print(
    number: int, line: str, result: "Result", aligned: "list[Alignment] | None", n_best: int, as_json: bool
) -> None:
    if as_json:
        translations: list[dict[str, Any]] = [
            {"text": each.text, "score": each.score, "probability": each.probability} for each in result.translations
        ]
        for translation, links in zip(translations, aligned or (), strict=False):
            translation["alignment"] = links.json()
        write_line(json.dumps({"source": line, "translations": translations}, ensure_ascii=False))
        return
    for place, each in enumerate(result.translations):
        shown = each.text if n_best == 1 else f"{number}\t{each.score:.4f}\t{each.text}"
        write_line(f"{shown}\t{aligned[place].pharaoh}" if aligned else shown)
