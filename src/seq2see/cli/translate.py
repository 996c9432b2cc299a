"""`seq2see translate`: translate standard input line by line, or as one document."""

import codecs
import json
import re
import select
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seq2see import special
from seq2see.cli import options
from seq2see.cli.messages import echo, progress, write_line
from seq2see.distributed import ranks
from seq2see.errors import DataError, SettingError
from seq2see.machine import has_torch
from seq2see.text import languages, rows
from seq2see.tokens.interface import LONGEST_NAMED

if TYPE_CHECKING:
    from seq2see.decoding.hypothesis import Engine
    from seq2see.decoding.translator import Result
    from seq2see.documents.glossary import Glossary
    from seq2see.lens.alignment import Alignment
    from seq2see.run import Run
    from seq2see.tokens.interface import Tokenizer

AT_ONCE = 2000
"""Maximum number of input lines per process that `translate` reads before it translates them: enough for efficient
batches, few enough for steady output.
"""
LONGEST_TEXT = 2**26
"""Maximum size in bytes of a document on standard input, which `translate --text` reads whole; a larger one is an
error.
"""
MOST_WORDS = 5
"""Maximum number of words with unknown tokens that a message names."""
PAUSE = "\n"
"""Value that `read_lines` yields when no more input has arrived for a moment; it differs from every line, which has no
line end.
"""


def translate(
    folder: options.Folder,
    to: options.To = None,
    beam: options.Beam = None,
    n_best: options.NBest = 1,
    prefix: Annotated[str | None, typer.Option(help="Text that every translation begins with.")] = None,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Add a tab and the word alignment to each translation: input-output, from 0 (Pharaoh format); "
            "with --json also by characters.",
        ),
    ] = False,
    text: options.Text = False,
    markup: options.Markup = "auto",
    glossary: options.GlossaryOption = None,
    cache: options.Cache = False,
    sample: options.Sample = False,
    temperature: options.Temperature = 1.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    seed: options.Seed = None,
    engine: options.EngineOption = "auto",
    precision: options.PrecisionOption = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Translate standard input to standard output, line by line or, with --text, as a document."""
    _check_document(text, markup, bool(sample or n_best > 1 or prefix or alignments))
    _check_sampling(sample, n_best, cache)
    sampling = options.sampling(sample, temperature, top_k, top_p, seed)
    from seq2see.decoding.shared_engine import Shared
    from seq2see.decoding.translator import encode_prefix
    from seq2see.documents.glossary import Glossary

    run = options.open_run(folder)
    terms = None if glossary is None else Glossary.read(glossary, run.languages)
    if engine == "auto" and prefix and has_torch():  # scores count forced tokens: the engines differ in how
        engine = "torch"
    run.tagged([], to)  # finds a mistake in --to before any line is read
    encode_prefix(run.tokenizers.target, prefix or "")
    if alignments:
        options.check_torch("--alignments")
        run.need_attention("alignments")
    if text:
        chosen = options.pick_engine(run, engine, precision, None)
        _translate_text(run, options.with_cache(run, chosen) if cache else chosen, markup, beam, to, terms, as_json)
        return
    with ranks.joined() as group:
        chosen = group.after_first(lambda: options.pick_engine(run, engine, precision, sampling))
        chosen = options.with_cache(run, chosen) if cache else chosen
        searching = chosen if group.alone else Shared(chosen, group)
        first, used = 1, Counter[str]()
        strange, example = 0, (0, "")
        blocks = _blocks(AT_ONCE * group.world)
        empty, unknown = _unlearned(run.tokenizers.source.spellings())
        while block := group.run_on_first(lambda: next(blocks, None)):
            prefixes = None if prefix is None else [prefix] * len(block)
            results = run.search(block, beam, n_best, prefixes, searching, to, terms)
            if group.is_first:
                with progress() as run.watch:
                    aligned = run.align(block, results, to) if alignments else [[]] * len(block)
                if alignments and first == 1 and run.alignment_method.is_weak:
                    echo(f"alignments are computed {run.alignment_method.in_words}", err=True)
                for number, (line, result, links) in enumerate(zip(block, results, aligned, strict=True), first):
                    if as_json:
                        _print_json(line, result, links, run.manifest.get("confidence"))
                    else:
                        _print(number, result, links, n_best)
                    if _warn(number, result, run.settings.decoding.max_source, empty, unknown):
                        strange, example = strange + 1, (example if strange else (number, line))
                    used.update(term.how for each in result.translations[:1] for term in each.terms)
                sys.stdout.flush()
            first += len(block)
    if strange:
        _warn_of_unknown(strange, *example, run.tokenizers.source, unknown)
    if terms is not None and used:
        counts = ", ".join(f"{how} {count:,}" for how, count in used.most_common())
        echo(f"{used.total():,} terms of {glossary} in the input; method that enforced them: {counts}", err=True)


def _check_document(text: bool, markup: str, by_lines: bool) -> None:
    """Raise an error for options that cannot be combined with --text, or that need it.

    Args:
        by_lines: Whether an option is given that applies to lines only.
    """
    if text and by_lines:
        raise SettingError(
            "--text cannot be combined with --sample, --n-best, --prefix or --alignments: leave them out"
        )
    if text and ranks.from_torchrun()[1] > 1:
        raise SettingError("--text runs in one process: start it without torchrun")
    if markup != "auto" and not text:
        raise SettingError(f"--markup {markup}: add --text, which translates a document instead of lines")


def _check_sampling(sample: bool, n_best: int, cache: bool) -> None:
    """Raise an error for options that cannot be combined with --sample or with several processes (torchrun)."""
    several = ranks.from_torchrun()[1] > 1
    if cache and (sample or several):
        raise SettingError("--cache cannot be combined with --sample or torchrun: leave them out")
    if sample and n_best > 1:
        raise SettingError("--sample gives one translation per line: leave --n-best out")
    if sample and several:
        raise SettingError("--sample runs in one process: start it without torchrun")


def _translate_text(
    run: "Run",
    engine: "Engine",
    markup: str,
    beam: int | None,
    to: str | None,
    terms: "Glossary | None",
    as_json: bool,
) -> None:
    """Translate standard input as one document."""
    from seq2see.documents import document

    data = sys.stdin.buffer.read(LONGEST_TEXT + 1)
    if len(data) > LONGEST_TEXT:
        raise DataError(f"standard input: more than {LONGEST_TEXT:,} bytes. Translate it in parts")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise _not_utf_8(line, data[problem.start : problem.start + rows.BEGINNING]) from None
    document.check_format(markup)
    if not run.text_options.is_language:
        echo(
            "lines (in markup: paragraphs) are translated as they are: the model was not trained on human languages, "
            "so that sentences are not split and placeholders are not protected",
            err=True,
        )
    with progress() as run.watch:
        joined = run.translate_text(text, markup, beam, to, engine, terms)
    counts = joined.counts
    if as_json:
        write_line(json.dumps({"text": joined.text, "counts": counts.json()}, ensure_ascii=False))
    else:
        sys.stdout.buffer.write(joined.text.encode("utf-8", "replace"))
    if counts.guessed or counts.tags_guessed:
        echo(
            f"placed by guess, without an alignment: {counts.tags_guessed} of {counts.tags} tags, "
            f"{counts.guessed} of {counts.placeholders} placeholders",
            err=True,
        )
    sys.stdout.flush()


def _print(number: int, result: "Result", aligned: "list[Alignment]", n_best: int) -> None:
    for place, each in enumerate(result.translations):
        shown = each.text if n_best == 1 else f"{number}\t{each.score:.4f}\t{each.text}"
        write_line(f"{shown}\t{aligned[place].pharaoh}" if aligned else shown)


def _print_json(line: str, result: "Result", aligned: "list[Alignment]", kept: Any) -> None:
    """Print the translations of a line as JSON; `kept` is the manifest's calibration of the confidence, or None."""
    from seq2see.evaluation import confidence

    calibration = None if kept is None else confidence.from_json(kept)
    translations: list[dict[str, Any]] = [
        {"text": each.text, "score": each.score, "probability": each.probability} for each in result.translations
    ]
    for translation, links in zip(translations, aligned, strict=False):
        translation["alignment"] = links.json()
    for translation, each in zip(translations, result.translations, strict=True):
        known = None if calibration is None else calibration.of(each)
        if known is not None:
            translation["confidence"] = known._asdict()
        if each.terms:
            translation["terms"] = [term.json() for term in each.terms]
    write_line(json.dumps({"source": line, "translations": translations}, ensure_ascii=False))


def _unlearned(spellings: list[str]) -> tuple[set[int], set[int]]:
    """Return the ids of tokens that stand for blanks only, and of those that stand for characters without a token:
    the unknown token, and single bytes, of which subwords make such characters.
    """
    empty = {number for number, token in enumerate(spellings) if not token.strip("▁ ")}
    unknown = {number for number, token in enumerate(spellings) if re.fullmatch("<0x[0-9A-F]{2}>", token)}
    return empty - {special.UNKNOWN}, unknown | {special.UNKNOWN}


def _warn_of_unknown(lines: int, number: int, line: str, tokenizer: "Tokenizer", unknown: set[int]) -> None:
    """Print which words of line `number` have unknown tokens, and how many lines have some; it is the first of them."""
    from seq2see.tokens import spans

    words = spans.unknown_words(tokenizer, line, unknown)
    more = f" and {len(words) - MOST_WORDS} more" if len(words) > MOST_WORDS else ""
    named = " ".join(word if len(word) <= LONGEST_NAMED else f"{word[:LONGEST_NAMED]}…" for word in words[:MOST_WORDS])
    all_of_them = "" if lines == 1 else f"; {lines:,} lines have such text"
    echo(f"line {number}: has text that the model does not know: {named}{more}{all_of_them}", err=True)


def _warn(number: int, result: "Result", limit: int, empty: set[int], unknown: set[int]) -> bool:
    """Print what the user should know about the translation of a line; `_unlearned` returns `empty` and `unknown`.

    Return whether some of its tokens, but not all, are unknown.
    """
    for term in result.translations[0].terms if result.translations else ():
        if term.how == "missing":
            echo(f"line {number}: no translation with the term '{term.text}' as '{term.form}' was found", err=True)
    tokens = {*result.source[:-1]} - empty
    is_guess = bool(tokens) and tokens <= unknown
    if is_guess:
        echo(f"line {number}: all of its tokens are unknown to the model, so the translation is a guess", err=True)
    if result.cut:
        echo(f"line {number}: longer than decoding.max_source = {limit} tokens, the rest was cut", err=True)
    return not is_guess and not unknown.isdisjoint(tokens)


def _blocks(size: int) -> Iterator[list[str]]:
    """Yield blocks of up to `size` lines, fewer if they are very long.

    A pause of the input also ends a block, for programs that wait for each answer.
    """
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
    except DataError:  # the lines before the damaged one are still translated
        if block:
            yield block
        raise
    if block:
        yield block


def read_lines() -> Iterator[str]:
    """Yield the lines of standard input, and `PAUSE` when no more input is available yet.

    Only a line feed ends a line, so that output lines match input lines whatever they contain.
    """
    number = size = 0
    rest: list[bytes] = []  # of a line whose end has not come yet
    while chunk := sys.stdin.buffer.read1(1 << 16):  # type: ignore[union-attr]
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


def _decoded(line: bytes, number: int) -> str:
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)  # as in files of pairs
    try:
        return line.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError:
        raise _not_utf_8(number, line) from None


def _not_utf_8(number: int, undecoded: bytes) -> DataError:
    """Return the error for a line of standard input; its encoding is guessed by the bytes that cannot be decoded."""
    encoding = languages.guess_encoding([undecoded])
    how = f"It is probably {encoding}. Convert it: iconv -f {encoding} -t UTF-8" if encoding else "Convert it to UTF-8"
    return DataError(f"standard input, line {number}: not UTF-8. {how}")


def _pauses() -> bool:
    """Return whether no more input arrives within 20 ms; false at the end of the input, and for files."""
    try:
        return not select.select([sys.stdin.buffer.fileno()], [], [], 0.02)[0]
    except (OSError, ValueError):
        return False
