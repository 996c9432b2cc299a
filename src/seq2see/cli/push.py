"""`seq2see push`: upload a run to the Hugging Face Hub."""

import json
from pathlib import Path
from typing import Annotated

import typer

from seq2see.cli.messages import echo, write_line
from seq2see.cli.options import Debug, Folder, Json


def push(
    folder: Folder,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name on the Hub: OWNER/NAME.")],
    private: Annotated[bool, typer.Option("--private", help="Make a private repository.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Upload a model to the Hugging Face Hub, with a model card to complete. The token is that of: hf auth login."""
    from seq2see.interop import hub

    address = hub.push(Path(folder), name, private=private)
    if as_json:
        write_line(json.dumps({"run": folder, "address": address}))
        return
    echo(f"{address}: uploaded. Complete the model card there: licence, data, use")
