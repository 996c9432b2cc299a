"""`seq2see chat`: a conversation in the terminal."""

import contextlib
import io
import sys
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import typer

from seq2see.cli.options import (
    Beam,
    Debug,
    EngineOption,
    Folder,
    PrecisionOption,
    Sample,
    Seed,
    Temperature,
    To,
    TopK,
    TopP,
    pick_engine,
)
from seq2see.cli.translate import PAUSE, read_lines, write_line

if TYPE_CHECKING:
    from seq2see.data.tokenizer import Tokenizer
    from seq2see.decoding.translator import Result
    from seq2see.run import Run


class Words(NamedTuple):
    """What is said in a conversation besides the answers."""

    hello: str
    nothing: str
    unreadable: str
    foreign: str
    long: str
    silent: str
    line: str
    """What comes before these where nobody sees which line they are about."""


ENGLISH = Words(
    hello="Type a line and press Enter. Ctrl-D ends.",
    nothing="Type something, and it will be answered.",
    unreadable="Part of that was not UTF-8 and could not be read. Is the terminal set to UTF-8?",
    foreign="The model has not seen such text in training and cannot answer it. Could you put it another way?",
    long="That is longer than anything in training: of such lines only the first {limit} tokens are read.",
    silent="The model has no answer to that.",
    line="line {number}: ",
)
KOREAN = Words(
    hello="메시지를 입력하고 Enter를 누르세요. 끝내려면 Ctrl-D를 누르세요.",
    nothing="내용을 입력해 주세요.",
    unreadable="UTF-8이 아니어서 읽을 수 없는 글자가 있습니다. 터미널의 문자 인코딩을 확인해 주세요.",
    foreign="학습할 때 보지 못한 글이라 답하기 어렵습니다. 다른 말로 바꿔 주시겠어요?",
    long="학습한 것보다 긴 글은 앞의 {limit}토큰까지만 읽고 답합니다.",
    silent="이 말에는 답을 찾지 못했습니다.",
    line="{number}번째 줄: ",
)


def chat(
    folder: Folder,
    to: To = None,
    beam: Beam = None,
    sample: Sample = False,
    temperature: Temperature = 1.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    seed: Seed = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = None,
    debug: Debug = False,
) -> None:
    """Talk with a model: each line you type is answered, one line for each where they are piped. End with Ctrl-D."""
    from seq2see.run import load

    run = load(folder)
    chosen = pick_engine(
        run, engine, precision, sample=sample, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    decoding = run.settings.decoding
    limit = min(decoding.max_source - 1, run.settings.data.max_length)  # one place is for the end
    run.settings = replace(run.settings, decoding=replace(decoding, max_source=limit + 1))
    interactive = sys.stdin.isatty()
    run.tagged(["?"] if interactive else [], to)  # a slip in --to need not wait for a line
    words = _words(run)
    words = words._replace(long=words.long.format(limit=limit))
    told_of_length = False
    try:
        for number, line in enumerate(_typed(words) if interactive else _piped(), start=1):
            answer, note = _reply(run, line, words, lambda text: run.search([text], beam, engine=chosen, to=to)[0])
            if note == words.long:
                note, told_of_length = "" if told_of_length else note, True
            if interactive and note:
                typer.secho(note, dim=True, err=True)
            elif note and note != words.nothing:  # in a file an empty line is no riddle
                typer.echo(words.line.format(number=number) + note, err=True)
            if answer or not interactive:
                write_line(answer)
                sys.stdout.flush()
    finally:  # also after Ctrl-C
        if interactive:
            typer.echo(err=True)


def _reply(run: "Run", typed: str, words: Words, search: Callable[[str], "Result"]) -> tuple[str, str]:
    """The answer to a line, and what is to be said about it; either may be empty."""
    line = _tidy(typed, run.tokenizers.source)
    if not line:
        return "", words.nothing
    if "\ufffd" in line:
        return "", words.unreadable
    if run.tokenizers.source.familiar(line) < 0.5:
        return "", words.foreign
    result = search(line)
    answer = result.text.strip()
    return answer, words.long if result.cut else "" if answer else words.silent


def _words(run: "Run") -> Words:
    """In the language that the user writes: Korean where the run's sources are, else English."""
    from seq2see.data.languages import matches

    if (code := run.languages.source) is not None:
        return KOREAN if matches("ko", code) else ENGLISH
    return KOREAN if run.tokenizers.source.scripts[:1] == ["HANGUL"] else ENGLISH


def _tidy(line: str, tokenizer: "Tokenizer") -> str:
    """A line as training is likely to have had it: single blanks, nothing invisible, composed syllables and accents.

    Where training knows it better as it was typed (a corpus in decomposed letters, say), it stays so.
    """
    typed = " ".join(line.split())
    visible = "".join(each for each in typed if each.isprintable() or tokenizer.familiar(each) == 1)
    return max(unicodedata.normalize("NFC", visible), visible, typed, key=tokenizer.familiar).strip()


def _typed(words: Words) -> Iterator[str]:
    """Lines as they are typed, up to Ctrl-D."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  arrow keys and history
    typer.secho(words.hello, dim=True, err=True)
    with contextlib.suppress(EOFError):
        while True:
            if not sys.stdout.isatty():  # answers go to a file or a program: the prompt does not
                typer.echo("> ", nl=False, err=True)
            yield input("> " if sys.stdout.isatty() else "")


def _piped() -> Iterator[str]:
    return (line for line in read_lines() if line is not PAUSE)
