"""The program `seq2see`: its verbs, and what becomes of errors."""

import atexit
import os
import signal
import sys
import traceback
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from seq2see import __version__
from seq2see.cli.chat import chat
from seq2see.cli.data import data_get, data_list
from seq2see.cli.doctor import doctor
from seq2see.cli.draw import (
    draw_architecture,
    draw_curves,
    draw_dot_products,
    draw_heads,
    draw_masks,
    draw_warm_up,
    draw_waves,
)
from seq2see.cli.evaluate import evaluate
from seq2see.cli.export import export
from seq2see.cli.lab import lab
from seq2see.cli.look import look
from seq2see.cli.serve import serve
from seq2see.cli.train import SETTINGS_HELP, train
from seq2see.cli.translate import translate
from seq2see.errors import SeqError
from seq2see.training import ranks


class Verbs(TyperGroup):
    """A help page that is not asked for is False, not None, which typer would import pydantic to look at."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            option.default = False
        return option


app = typer.Typer(
    cls=Verbs,
    help="Train, see into and serve sequence-to-sequence Transformers.",
    epilog="Example: seq2see train dates",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
draw = typer.Typer(cls=Verbs, help="Pictures that need no sentence.", epilog="Example: seq2see draw waves -o waves.png")
data = typer.Typer(cls=Verbs, help="Corpora by name.", epilog="Example: seq2see data list")

app.command(epilog=f"{SETTINGS_HELP}\n\nExample: seq2see train dates --out runs/dates")(train)
app.command(epilog="Example: seq2see doctor pairs.tsv --write clean.tsv")(doctor)
app.command(epilog='Example: echo "12 mars 1987" | seq2see translate runs/dates')(translate)
app.command(epilog="Example: seq2see chat runs/dates")(chat)
app.command(epilog="Example: seq2see evaluate runs/dates dates")(evaluate)
app.command(epilog='Example: seq2see look runs/dates "12 mars 1987" -o look.html')(look)
draw.command("waves", epilog="Example: seq2see draw waves --length 50 --d-model 128 -o waves.png")(draw_waves)
draw.command("dot-products", epilog="Example: seq2see draw dot-products -o dot-products.svg")(draw_dot_products)
draw.command("masks", epilog='Example: seq2see draw masks "<s>" ich bin hier "<pad>"')(draw_masks)
draw.command("warm-up", epilog="Example: seq2see draw warm-up --d-model 512 --warmup-steps 4000")(draw_warm_up)
draw.command("architecture", epilog="Example: seq2see draw architecture tutorial-small")(draw_architecture)
draw.command("curves", epilog="Example: seq2see draw curves runs/dates -o curves.svg")(draw_curves)
draw.command("heads", epilog="Example: seq2see draw heads runs/dates dates -o heads.png")(draw_heads)
app.add_typer(draw, name="draw")
app.command(epilog="Example: seq2see lab scaling order --quick")(lab)
app.command(epilog="Example: seq2see serve runs/dates --port 8000")(serve)
app.command(epilog="Example: seq2see export runs/dates dates-ct2 --precision int8")(export)
data.command("list", epilog="Example: seq2see data list --json")(data_list)
data.command("get", epilog="Example: seq2see data get chatbot-ko --from ChatbotData.csv")(data_get)
app.add_typer(data, name="data")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"seq2see {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _program(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    _help_if_alone(context)


@draw.callback(invoke_without_command=True)
def _help_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


UsageError = typer.BadParameter.__mro__[1]  # of click, or of typer's own copy of it: whichever typer uses


def main() -> None:
    """Run one verb.

    Exit code 0: done; 2: the user's mistake, in one line; 75: the same, where repeating it may help; 130: Ctrl-C; 143:
    SIGTERM; 129: SIGHUP.
    """
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # Ctrl-C while Python ends would lose the exit code
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nobody ignores it, as nohup does
            signal.signal(number, _end)
    try:
        sys.exit(app(standalone_mode=False))
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
            traceback.print_exc()
        if ranks.may_speak(problem):
            typer.echo(f"seq2see: {line}", err=True)
        sys.exit(getattr(problem, "exit_code", 2))


def _end(number: int, frame: FrameType | None) -> None:
    """Clear away whatever was begun, as after Ctrl-C."""
    sys.exit(128 + number)


def _one_line(problem: Exception) -> str | None:
    """What to tell the user; None for what is not the user's to mend."""
    if isinstance(problem, SeqError):
        return " ".join(str(problem).split())
    if isinstance(problem, UsageError):
        context = getattr(problem, "ctx", None)
        hint = f" See: {context.command_path} --help" if context else ""
        if context and type(problem).__name__ == "MissingParameter":  # which of several words is missing, it guesses
            hint = f" {' '.join(context.get_usage().split())}"
        return f"{problem.format_message()}{hint}"  # type: ignore[attr-defined]
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename or 'output'}: {problem.strerror}"
    return None
