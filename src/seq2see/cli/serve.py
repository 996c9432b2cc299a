"""`seq2see serve`: start the HTTP service."""

import math
from importlib.util import find_spec
from typing import Annotated

import typer

from seq2see.cli.options import Debug, EngineOption, PrecisionOption, check_torch
from seq2see.errors import SettingError

CachedSentences = Annotated[
    int,
    typer.Option(
        min=0,
        max=10_000_000,
        help="Cache the translations of at most this many sentences of documents; 0: no cache.",
    ),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Also accept requests whose Host header has this name; may be repeated (*: any name). "
        "Without it: localhost, and with --host also this machine's name and any IP address.",
    ),
]


def serve(
    folders: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Run folders; each model has the name of its folder.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default can be reached from this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 8000,
    engine: EngineOption = "auto",
    precision: PrecisionOption = None,
    api_keys: Annotated[
        str | None, typer.Option(metavar="FILE", help="Require one of the API keys in this file, one per line.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="ORIGIN", help="Allow pages of this site to send requests (https://example.org; *: all)."),
    ] = None,
    allow_host: AllowedHosts = None,
    rate_limit: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Maximum number of requests per client and minute; 0: no limit.")
    ] = 0,
    deadline: Annotated[
        float, typer.Option(min=1, max=86_400, help="Maximum seconds for one request; after that, status 504.")
    ] = 30,
    queue: Annotated[
        int, typer.Option(min=1, help="Maximum number of waiting requests; more are refused (status 429).")
    ] = 256,
    load_timeout: Annotated[float, typer.Option(min=1, max=86_400, help="Maximum seconds to load the models.")] = 300,
    batch_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum number of tokens in a batch; 1: translate each text alone.")
    ] = 2048,
    max_characters: Annotated[int, typer.Option(min=1, help="Maximum number of characters in one request.")] = 10_000,
    max_texts: Annotated[int, typer.Option(min=1, help="Maximum number of texts in one request.")] = 100,
    max_beam: Annotated[int, typer.Option(min=1, help="Maximum beam width that a request may ask for.")] = 10,
    max_output_tokens: Annotated[int, typer.Option(min=1, help="Maximum number of tokens in one translation.")] = 2048,
    cache: CachedSentences = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log each request.")] = False,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log texts and translations as JSON lines.")] = False,
    debug: Debug = False,
) -> None:
    """Serve runs over HTTP: translate, chat, look inside; LibreTranslate's and DeepL's APIs, too. Ctrl-C ends it."""
    for name, seconds in (("--deadline", deadline), ("--load-timeout", load_timeout)):
        if math.isnan(seconds):  # min and max let it pass
            raise SettingError(f"{name} nan: not a number of seconds")
    check_torch("--engine torch" if engine == "torch" else "")
    if not all(map(find_spec, ("fastapi", "prometheus_client", "uvicorn"))):
        raise SettingError("serve needs packages that are not installed: pip install 'seq2see[serve]'")
    from seq2see.serve import server
    from seq2see.serve.limits import Limits

    limits = Limits(
        deadline,
        queue,
        batch_tokens=batch_tokens,
        characters=max_characters,
        texts=max_texts,
        beam=max_beam,
        output_tokens=max_output_tokens,
        load_seconds=load_timeout,
        cached=cache,
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
