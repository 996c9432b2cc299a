"""`seq2see chat`: a conversation in the terminal."""

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from seq2see.cli import options
from seq2see.cli.messages import echo, write_line
from seq2see.cli.translate import PAUSE, read_lines

if TYPE_CHECKING:
    from seq2see.conversation import Words


def chat(
    folder: options.Folder,
    to: options.To = None,
    beam: options.Beam = None,
    sample: options.Sample = False,
    temperature: options.Temperature = 1.0,
    top_k: options.TopK = 0,
    top_p: options.TopP = 1.0,
    seed: options.Seed = None,
    engine: options.EngineOption = "auto",
    precision: options.PrecisionOption = None,
    debug: options.Debug = False,
) -> None:
    """Talk to a model: it answers each line that you type, or each line of piped input. End with Ctrl-D."""
    from seq2see import conversation
    from seq2see.run import load

    sampling = options.sampling(sample, temperature, top_k, top_p, seed)
    run = load(folder)
    chosen = options.pick_engine(run, engine, precision, sampling)
    run.settings = conversation.settings_for(run.settings)
    interactive = sys.stdin.isatty()
    run.tagged(["?"] if interactive else [], to)  # finds a mistake in --to before any line is read
    words = conversation.words_for(run)
    told_of_length = False
    try:
        lines = _typed(words) if interactive else (line for line in read_lines() if line is not PAUSE)
        for number, line in enumerate(lines, start=1):
            heard, note = conversation.hear(run, line, words)
            answer = ""
            if not note:
                answer, note = conversation.answer(run.search([heard], beam, engine=chosen, to=to)[0], words)
            if note == words.long:
                note, told_of_length = "" if told_of_length else note, True
            if interactive and note:
                echo(note, dim=True, err=True)
            elif note and note != words.nothing:  # in a file an empty line needs no remark
                echo(words.line.format(number=number) + note, err=True)
            if answer or not interactive:
                write_line(answer)
                sys.stdout.flush()
    finally:  # also after Ctrl-C
        if interactive:
            echo(err=True)


def _typed(words: "Words") -> Iterator[str]:
    """Yield the lines that the user types, up to Ctrl-D."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  arrow keys and history
    echo(words.hello, dim=True, err=True)
    with contextlib.suppress(EOFError):
        while True:
            if not sys.stdout.isatty():  # answers go to a file or a program: the prompt does not
                echo("> ", nl=False, err=True)
            yield input("> " if sys.stdout.isatty() else "")
