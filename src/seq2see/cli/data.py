"""`seq2see data`: list and download corpora, and show the progress of downloads."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from seq2see.cli.messages import echo, write_line
from seq2see.cli.options import Debug, Json
from seq2see.display.wording import padded, translated
from seq2see.errors import SettingError

if TYPE_CHECKING:
    from rich.progress import Progress

    from seq2see.text.downloads import Fetching


class Downloads:
    """Context manager and callback for downloads of `open_corpus`: prints a line about each, and a progress bar on a
    terminal.
    """

    def __init__(self) -> None:
        self._begun: str | None = None
        self._bar: Progress | None = None

    def __enter__(self) -> "Downloads":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()
            self._bar = None

    def __call__(self, event: "Fetching") -> None:
        from seq2see.text.downloads import in_bytes

        if self._begun != event.corpus:
            self._begun = event.corpus
            echo(f"downloading {event.corpus}: {in_bytes(event.total)} from {event.place}", err=True)
            if sys.stderr.isatty():
                from rich import progress
                from rich.console import Console

                columns = progress.DownloadColumn(), progress.TransferSpeedColumn(), progress.TimeRemainingColumn()
                bar = progress.BarColumn(bar_width=24)
                self._bar = progress.Progress(bar, *columns, console=Console(stderr=True), transient=True)
                self._bar.add_task("", total=event.total)
                self._bar.start()
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=event.done)
        if event.done == event.total:
            self.__exit__()


def data_list(as_json: Json = False, debug: Debug = False) -> None:
    """List the corpora that can be used by name."""
    from seq2see.text.downloads import catalogue, in_bytes

    entries = catalogue()
    if as_json:
        write_line(json.dumps([entry._asdict() for entry in entries]))
        return
    for entry in entries:
        cached = translated("cached" if entry.cached else "not cached")
        where = f"{in_bytes(entry.size)}, {cached}" if entry.size else translated("built in")
        pairs, about = translated(f"{entry.pairs:,} pairs"), translated(entry.description)
        echo(f"{entry.name:<16}{pairs:>13}  {padded(where, 18)}  {about} ({entry.licence})")


def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a corpus; `seq2see data list` shows all.")],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Further local files or folders for --from.")
    ] = None,
    places: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="FILE", help="Use local files (plain or .gz), or folders, instead of downloading."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Download a corpus into the cache, or take it from local files; each file is verified by its checksum."""
    from seq2see.text import downloads

    if more and not places:
        raise SettingError(
            f"one corpus at a time, not {name} and {', '.join(more)}. Local files are given after --from"
        )
    with Downloads() as watch:
        folder = downloads.get(name, [*(places or ()), *(more or ())], watch)
    if folder is None:
        echo(f"{name} is built in: nothing is downloaded, and it can be used by its name")
        return
    entry = next(entry for entry in downloads.catalogue() if entry.name == name)
    echo(f"{name}: {entry.pairs:,} pairs, {downloads.in_bytes(entry.size)} in {folder}")
