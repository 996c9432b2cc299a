"""`seq2see serve`: the HTTP service."""

import math
from typing import Annotated

import typer

from seq2see.cli.options import Debug, EngineOption, PrecisionOption
from seq2see.errors import SettingError


def serve(
    folders: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Folders that train wrote; each is served by its name.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; the default is reached from this machine only.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8000,
    engine: EngineOption = "auto",
    precision: PrecisionOption = None,
    api_keys: Annotated[
        str | None, typer.Option(metavar="FILE", help="Answer only those who send one of these keys, one a line.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Let pages of this site ask, too (https://example.org; *: of all)."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Accept requests whose Host header has this name, too; may be repeated (*: any name). "
            "Without it: localhost, and with --host also this machine's name and any IP address.",
        ),
    ] = None,
    rate_limit: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Requests a minute for each client; 0: no limit.")
    ] = 0,
    deadline: Annotated[
        float, typer.Option(min=1, max=86_400, help="Seconds after which a request is given up (504).")
    ] = 30,
    queue: Annotated[int, typer.Option(min=1, help="Requests that may wait; more are refused (429).")] = 256,
    load_timeout: Annotated[
        float, typer.Option(min=1, max=86_400, help="Seconds in which an engine must have loaded its models.")
    ] = 300,
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="Work, in tokens, that goes to the engine at once; 1: each text alone.")
    ] = 2048,
    max_characters: Annotated[int, typer.Option(min=1, help="Of all texts of a request.")] = 10_000,
    max_texts: Annotated[int, typer.Option(min=1, help="In a request.")] = 100,
    max_beam: Annotated[int, typer.Option(min=1, help="That a request may ask for.")] = 10,
    max_output_tokens: Annotated[int, typer.Option(min=1, help="Of one translation.")] = 2048,
    quiet: Annotated[bool, typer.Option("--quiet", help="No line for each request.")] = False,
    log_texts: Annotated[
        bool, typer.Option("--log-texts", help="Write what is asked and answered to stderr, as JSON lines.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Serve runs over HTTP: translate, chat, look inside; LibreTranslate's API too. Ctrl-C or SIGTERM ends it."""
    for name, seconds in (("--deadline", deadline), ("--load-timeout", load_timeout)):
        if math.isnan(seconds):  # which is within any bounds
            raise SettingError(f"{name} nan: not a number of seconds")
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise SettingError("serve needs more than is installed: pip install 'seq2see[serve]'") from None
    from seq2see.serve import server
    from seq2see.serve.limits import Limits

    limits = Limits(
        deadline=deadline,
        queue_requests=queue,
        batch_tokens=batch_tokens,
        characters=max_characters,
        texts=max_texts,
        beam=max_beam,
        output_tokens=max_output_tokens,
        load_seconds=load_timeout,
        body_bytes=max(Limits.body_bytes, 16 * max_characters),
    )
    server.serve(
        folders,
        host,
        port,
        engine,
        precision,
        api_keys,
        rate_limit,
        limits,
        not quiet,
        log_texts,
        allow_origin or [],
        allow_host or [],
    )
