"""`seq2see train`: train a model on pairs and write a run folder."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from seq2see import config
from seq2see.cli import options
from seq2see.cli.messages import echo, write_line
from seq2see.cli.options import parse_assignments
from seq2see.errors import SettingError, nearest

if TYPE_CHECKING:
    from seq2see.cli.display import Display

METRICS = get_args(config.Metric)
SETTINGS = [f"{key} = {default}  ({kind}) {about}" for key, kind, default, about in config.describe()]
MORE_HELP = "\n".join(["Settings for --set and --config:", "", "\b", *SETTINGS, "", ""])
"""List of all settings, which the help page of `train` shows before the example."""

Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Named settings: {', '.join(config.PRESETS)}.",
        autocompletion=lambda: list(config.PRESETS),
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Change one setting; may be repeated.",
        autocompletion=lambda: [f"{key}=" for key, *_ in config.describe()],
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Choose the best model by {', '.join(METRICS)} (training.metric).",
        autocompletion=lambda: list(METRICS),
    ),
]


def train(
    pairs: options.ManyPairs,
    out: Annotated[str | None, typer.Option(metavar="RUN", help="Run folder to write. Default: runs/<corpus>.")] = None,
    valid: Annotated[
        str | None, typer.Option(metavar="PAIRS", help="Validation pairs; or how many to hold out, such as 500 or 2%.")
    ] = None,
    preset: Preset = None,
    config_file: Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings file in TOML.")] = None,
    assignments: Assignments = None,
    metric: Metric = None,
    to_export: options.ForExport = None,
    format: options.Format = None,
    source_column: options.SourceColumn = None,
    target_column: options.TargetColumn = None,
    source_language: options.SourceLanguage = None,
    target_language: options.TargetLanguage = None,
    tag: Annotated[
        bool, typer.Option("--tag", help="Train for several target languages, with a language tag before each source.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the training in the run folder where it stopped.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Delete an earlier training in the run folder.")] = False,
    from_run: Annotated[
        str | None,
        typer.Option("--from", metavar="RUN", help="Fine-tune the model of this run, and report what it forgot."),
    ] = None,
    tune: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="Minutes for trials of other settings; 0: no trials. Default: up to 3 trials, no time limit.",
        ),
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Train a model on pairs of sequences. No settings are needed: the corpus suggests them."""
    overlay = parse_assignments([*(assignments or []), *([f"training.metric={metric}"] if metric else [])])
    overlay = overlay if to_export is None else for_export(to_export, overlay)
    config.check_keys(overlay)  # finds a misspelt key before torch is imported
    from seq2see import api
    from seq2see.cli.display import Display
    from seq2see.distributed import ranks

    before = manifest_of(folder_of(out, pairs)) if force else None
    with Display() as display:
        try:
            run = api.train(
                pairs,
                out,
                valid=valid,
                preset=preset,
                config_file=config_file,
                settings=overlay,
                format=format,
                source_column=source_column,
                target_column=target_column,
                source_language=source_language,
                target_language=target_language,
                tag=tag,
                resume=resume,
                force=force,
                from_run=from_run,
                tune=tune,
                watch=display.show,
            )
        except api.Interrupted as stopped:
            say_how_to_resume(display, folder_of(out, pairs))
            raise typer.Exit(128 + stopped.signal) from None
        except KeyboardInterrupt:  # before the training began, or a second signal, which saves nothing more
            say_how_to_resume(display, folder_of(out, pairs), is_saved=False, replaced=before)
            raise
    if ranks.from_torchrun()[0]:
        return  # the first process prints the result
    if as_json:
        write_line(json.dumps({"run": str(run.folder), **run.manifest}, ensure_ascii=False))
    echo(f"model  {run.folder}\nreport {run.folder / 'report.html'}", err=True)


def folder_of(out: str | None, pairs: list[str]) -> Path:
    """Return the run folder of a training."""
    from seq2see.text import corpora

    return Path("runs") / corpora.name_of(pairs) if out is None else Path(out)


def manifest_of(folder: Path) -> tuple[int, int] | None:
    """Return numbers that tell whether the manifest of a run folder is the same file later; None if there is none."""
    try:
        found = (folder / "manifest.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def say_how_to_resume(
    display: "Display", folder: Path, is_saved: bool = True, replaced: tuple[int, int] | None = None
) -> None:
    """Say what an interrupted training has saved, and show the command that resumes it; of several processes, the first
    one does.

    Args:
        is_saved: Whether a checkpoint was saved after the last step.
        replaced: With `--force`, what `manifest_of` returned for the earlier run in this folder.
    """
    from seq2see.distributed import ranks

    number, count = ranks.from_torchrun()
    if number:
        return
    if not (folder / "manifest.json").exists():
        display.say("interrupted before the training began; nothing is saved")
        return
    if replaced is not None and replaced == manifest_of(folder):
        display.say(f"interrupted before the training began; the earlier run in {folder} is unchanged")
        return
    again = [word for word in sys.argv[1:] if word not in ("--force", "--resume")]
    program = "seq2see" if count == 1 else "torchrun ... -m seq2see"
    if not (folder / "checkpoints").is_dir():
        display.say("interrupted before the first checkpoint; the prepared corpus is saved. To train with it:")
    elif is_saved:
        after = f" after step {display.step:,}" if display.step else ""  # trials report no steps
        display.say(f"interrupted{after}; everything is saved. Resume with:")
    else:
        display.say("interrupted; everything up to the last checkpoint is saved. Resume with:")
    display.say(f"  {program} {shlex.join(again)} --resume")


def for_export(to: str, overlay: config.Overlay) -> config.Overlay:
    """Return the settings of the preset `marian`, whose models can be exported to Hugging Face, changed by those of the
    user.

    `to` must be "huggingface".
    """
    if to != "huggingface":
        raise SettingError(f"--for {to}: unknown. {nearest(to, ['huggingface'])} ctranslate2 and onnx need no --for")
    needed = config.preset("marian")
    return {section: needed.get(section, {}) | dict(overlay.get(section, {})) for section in {*needed, *overlay}}
