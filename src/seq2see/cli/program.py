"""The program `seq2see`: its verbs, and how errors are reported."""

import atexit
import importlib
import keyword
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType, TracebackType

import typer

from seq2see import __version__
from seq2see.cli.messages import echo
from seq2see.distributed import ranks
from seq2see.errors import SeqError

EXAMPLES = {
    "train": "seq2see train dates --out runs/dates",
    "doctor": "seq2see doctor pairs.tsv --write clean.tsv",
    "translate": 'echo "12 mars 1987" | seq2see translate runs/dates',
    "chat": "seq2see chat runs/dates",
    "evaluate": "seq2see evaluate runs/dates dates",
    "look": 'seq2see look runs/dates "12 mars 1987" -o look.html',
    "draw waves": "seq2see draw waves --length 50 --d-model 128 -o waves.png",
    "draw dot-products": "seq2see draw dot-products -o dot-products.svg",
    "draw masks": 'seq2see draw masks "<s>" ich bin hier "<pad>"',
    "draw warm-up": "seq2see draw warm-up --d-model 512 --warmup-steps 4000",
    "draw architecture": "seq2see draw architecture tutorial-small",
    "draw curves": "seq2see draw curves runs/dates -o curves.svg",
    "draw heads": "seq2see draw heads runs/dates dates -o heads.png",
    "lab": "seq2see lab scaling order --quick",
    "serve": "seq2see serve runs/dates --port 8000",
    "import": "seq2see import opus-mt-en-de runs/en-de",
    "export": "seq2see export runs/dates dates-ct2 --precision int8",
    "push": "seq2see push runs/dates OWNER/dates",
    "data list": "seq2see data list --json",
    "data get": "seq2see data get chatbot-ko --from ChatbotData.csv",
}
"""Every verb with a command that works; `draw dot-products` is the function `draw_dot_products` of `cli.draw`."""
GROUPS = {
    "draw": (
        "Draw pictures of a model, a training or the parts of the paper.",
        "Example: seq2see draw waves -o waves.png",
    ),
    "data": ("List and download corpora that have a name.", "Example: seq2see data list"),
}


def program(words: Sequence[str] = ()) -> typer.Typer:
    """Return the program with all verbs, or with only the one in `words`: importing the others takes time."""
    app = typer.Typer(
        help="Train, see into and serve sequence-to-sequence Transformers.",
        epilog="Example: seq2see train dates",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_program)
    groups: dict[str, typer.Typer] = {}
    asked = [name for name in EXAMPLES if name.split() == list(words[: len(name.split())])]
    for name in asked or EXAMPLES:
        first, _, second = name.partition(" ")
        home = importlib.import_module(f"seq2see.cli.{_in_python(first)}")
        if second and first not in groups:
            groups[first] = typer.Typer(help=GROUPS[first][0], epilog=GROUPS[first][1])
            groups[first].callback(invoke_without_command=True)(_help_if_alone)
            app.add_typer(groups[first], name=first)
        epilog = f"{getattr(home, 'MORE_HELP', '')}Example: {EXAMPLES[name]}"
        function = getattr(home, _in_python(name.replace(" ", "_").replace("-", "_")))
        groups.get(first, app).command(second or first, epilog=epilog)(function)
    return app


def _in_python(name: str) -> str:
    """Return a name that Python accepts: `import_` for the verb `import`."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _version(asked: bool) -> None:
    if asked:
        echo(f"seq2see {__version__}")
        raise typer.Exit


def _program(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    _help_if_alone(context)


def _help_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        echo(context.get_help())


UsageError = typer.BadParameter.__mro__[1]  # of click, or of the copy of click that comes with typer


def main() -> None:
    """Run one verb.

    Exit codes: 0 success; 2 a mistake of the user, reported in one line; 75 the same, where trying again may help;
    130 Ctrl-C; 143 SIGTERM; 129 SIGHUP.
    """
    sys.excepthook = _print_traceback
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # Ctrl-C while Python ends would lose the exit code
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # it is not ignored, as under nohup
            signal.signal(number, _end)
    try:
        sys.exit(program(sys.argv[1:])(standalone_mode=False))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except SystemExit as ending:
        if not isinstance(ending.__context__, BrokenPipeError):  # which typer makes an exit of
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output has seen enough
        sys.exit(0)
    except Exception as problem:
        line = _one_line(problem)
        if line is None:
            raise
        if "--debug" in sys.argv:
            echo(traceback.format_exc(), nl=False, err=True)
        if ranks.may_speak(problem):
            echo(f"seq2see: {line}", err=True)
        sys.exit(getattr(problem, "exit_code", 2))


def _print_traceback(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of a bug, which may quote texts of files, without control characters."""
    echo("".join(traceback.format_exception(kind, problem, trace)), nl=False, err=True)


def _end(number: int, frame: FrameType | None) -> None:
    """Exit through all `finally` clauses, as after Ctrl-C."""
    sys.exit(128 + number)


def _one_line(problem: Exception) -> str | None:
    """Return the message about a mistake of the user; None for a bug."""
    if isinstance(problem, SeqError):
        return " ".join(str(problem).split())
    if isinstance(problem, UsageError):
        context = getattr(problem, "ctx", None)
        hint = f" See: {context.command_path} --help" if context else ""
        if context and type(problem).__name__ == "MissingParameter":  # whose message may name the wrong parameter
            hint = f" {' '.join(context.get_usage().split())}"
        return f"{problem.format_message()}{hint}"  # type: ignore[attr-defined]
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename or 'output'}: {problem.strerror}"
    return None
