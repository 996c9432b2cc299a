"""The program `seq2see`: its verbs, and the reporting of errors."""

import atexit
import difflib
import importlib
import keyword
import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from itertools import takewhile
from types import FrameType, TracebackType
from typing import Annotated, Any

import typer

from seq2see import __version__
from seq2see.cli.messages import echo, write_line
from seq2see.cli.version import check_distributions
from seq2see.display import wording
from seq2see.distributed import ranks
from seq2see.errors import INSTALL_ALL, SeqError, SettingError

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
    "draw pruning": "seq2see draw pruning runs/dates dates -o pruning.png",
    "draw word": 'seq2see draw word runs/dates 12 "12 mars 1987" "3 mars 2012"',
    "lab": "seq2see lab scaling order --quick",
    "serve": "seq2see serve runs/dates --port 8000",
    "import": "seq2see import opus-mt-en-de runs/en-de",
    "export": "seq2see export runs/dates dates-ct2 --precision int8",
    "push": "seq2see push runs/dates OWNER/dates",
    "data list": "seq2see data list --json",
    "data get": "seq2see data get chatbot-ko --from ChatbotData.csv",
}
"""Every verb, with an example command; the function of the verb `draw dot-products` is `draw_dot_products` in
`cli.draw`.
"""
GROUPS = {
    "draw": (
        "Draw pictures of a model, a training or the parts of the paper.",
        "Example: seq2see draw waves -o waves.png",
    ),
    "data": ("List and download corpora that have a name.", "Example: seq2see data list"),
}


def program(words: Sequence[str] = ()) -> typer.Typer:
    """Return the program with only the verb at the beginning of `words`, since importing all verbs takes time; with all
    verbs if there is none.

    Args:
        words: the words of the command line; with --version before a verb, no verb is added.
    """
    app = typer.Typer(
        help="Train, see into and serve sequence-to-sequence Transformers.",
        epilog="Example: seq2see train dates",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_program)
    groups: dict[str, typer.Typer] = {}
    asked = [name for name in EXAMPLES if name.split() == list(words[: len(name.split())])]
    is_version = "--version" in takewhile(lambda word: word.startswith("-"), words)
    for name in () if is_version else asked or EXAMPLES:
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
    """Return the Python name of a verb: `import_` for `import`."""
    return f"{name}_" if keyword.iskeyword(name) else name


def _program(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --version: also versions of packages and hardware, for bug reports.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --version: print as JSON.")] = False,
    lang: Annotated[
        str | None,
        typer.Option(
            metavar="CODE", help="Language of messages: en or ko; also accepted after a command. Default: the locale."
        ),
    ] = None,
) -> None:
    if not version:
        if verbose or as_json:
            raise SettingError("--verbose and --json before a command need --version")
        _help_if_alone(context)
        return
    about: dict[str, Any] = {"seq2see": __version__}
    if verbose:
        from seq2see.cli import version as details

        about = details.facts()
    if as_json:
        import json

        write_line(json.dumps(about, ensure_ascii=False))
    else:
        echo(details.in_words(about) if verbose else f"seq2see {__version__}")
    raise typer.Exit


def _help_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        echo(context.get_help())


NOT_SLIM = {
    "jinja2": "Jinja2",
    "matplotlib": "Matplotlib",
    "sacrebleu": "sacreBLEU",
    "tensorboard": "TensorBoard",
    "tomli_w": "Tomli-W",
    "torch": "PyTorch",
}
"""Modules that the distribution seq2see-slim does not install, and the name of the project of each, for error
messages.
"""
UsageError = typer.BadParameter.__mro__[1]  # of click, or of the copy of click that comes with typer


def main() -> None:
    """Run the verb of the command line.

    Exit codes: 0 success; 1 a bug, reported with its traceback; 2 an error that the user can correct, in one line; 75
    a temporary error (`PassingError`), in one line; 130 Ctrl-C; 143 SIGTERM; 129 SIGHUP.
    """
    sys.excepthook = _print_traceback
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # Ctrl-C while Python ends would lose the exit code
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # it is not ignored, as under nohup
            signal.signal(number, _end)
    try:
        check_distributions()
        words = _take_language(sys.argv[1:])
        command = typer.main.get_command(program(words))
        _translate_help(command)
        sys.exit(command(words, prog_name="seq2see", standalone_mode=False))
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
            echo(f"seq2see: {wording.translated(line)}", err=True)
        sys.exit(getattr(problem, "exit_code", 2))


def _take_language(words: list[str]) -> list[str]:
    """Choose the language that `--lang` names, at any place before `--`; return the words without this option."""
    end = words.index("--") if "--" in words else len(words)
    for place, word in enumerate(words[:end]):
        if word == "--lang" or word.startswith("--lang="):
            name, taken = (word[7:], 1) if "=" in word else (words[place + 1] if place + 1 < end else "", 2)
            if name not in wording.LANGUAGES:
                raise SettingError(f"--lang {name}: unknown. Choose from: {', '.join(wording.LANGUAGES)}.")
            wording.choose(name)
            return [*words[:place], *words[place + taken :]]
    return words


def _translate_help(command: Any) -> None:
    """Translate the help of a command, its parameters and its sub-commands, unless the user reads English."""
    if wording.language() == "en":
        return
    for field in ("help", "short_help", "epilog"):
        if text := getattr(command, field, None):
            setattr(command, field, _lines(text) if field == "epilog" else wording.translated(" ".join(text.split())))
    for parameter in command.params:
        if getattr(parameter, "help", None):
            parameter.help = wording.translated(" ".join(parameter.help.split()))
    get_help = command.get_help
    command.get_help = lambda context: _with_headings(get_help(context))
    for each in getattr(command, "commands", {}).values():
        _translate_help(each)


def _lines(text: str) -> str:
    """Translate the lines after the options on a help page; in a line `key = value (type) text`, only the text."""
    parts = (line.rpartition(") ") if "=" in line.partition("(")[0] else ("", "", line) for line in text.split("\n"))
    return "\n".join(f"{before}{mark}{wording.translated(about)}" for before, mark, about in parts)


def _with_headings(text: str) -> str:
    """Translate the headings that the command-line library writes into a help page, into Korean."""
    for english, korean in wording.HEADINGS.items():
        text = text.replace(english, korean)
    return text


def _print_traceback(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of a bug, with control characters replaced, since it may quote texts of files."""
    echo("".join(traceback.format_exception(kind, problem, trace)), nl=False, err=True)


def _end(number: int, frame: FrameType | None) -> None:
    """Exit after a signal with the usual status, by an exception, so that `finally` clauses run as after Ctrl-C."""
    sys.exit(128 + number)


def _one_line(problem: Exception) -> str | None:
    """Return the one-line message for an error that the user or the system caused; None if the error is a bug."""
    if isinstance(problem, SeqError):
        return " ".join(str(problem).split())
    if isinstance(problem, UsageError):
        context = getattr(problem, "ctx", None)
        hint = f" See: {context.command_path} --help" if context else ""
        if context and type(problem).__name__ == "MissingParameter":  # whose message may name the wrong parameter
            hint = f" {' '.join(context.get_usage().split())}"
        if (close := getattr(problem, "possibilities", None)) and hasattr(problem, "option_name"):
            close = difflib.get_close_matches(problem.option_name, close, cutoff=0.7)
            problem.possibilities = close  # type: ignore[attr-defined]
        said = re.sub("^Missing argument '.*'", "Missing argument", problem.format_message())  # type: ignore[attr-defined]
        return f"{wording.translated(said)}{wording.translated(hint)}"
    if isinstance(problem, ModuleNotFoundError) and (package := (problem.name or "").partition(".")[0]) in NOT_SLIM:
        return f"{_verb()} needs {NOT_SLIM[package]}: {INSTALL_ALL}"
    if isinstance(problem, OSError) and problem.strerror:
        return f"{problem.filename or 'output'}: {problem.strerror}"
    return None


def _verb() -> str:
    """Return the verb of the command line, such as `train` or `draw waves`, for error messages."""
    words = sys.argv[1:]
    return next((name for name in EXAMPLES if name.split() == words[: len(name.split())]), "this command")
