"""Requests that nobody should send, many of them, drawn from a seed; and all that the OpenAPI description suggests."""

import importlib.util
import json
import random
import subprocess
import sys
from typing import Any

import pytest
from serving import Server

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

ROUTES = [
    *("/v1/translate", "/v1/chat", "/v1/look", "/v1/patch", "/v1/contrast"),
    *("/translate", "/detect", "/v2/translate", "/v2/glossaries"),
]
OTHERS = [
    "/",
    "/v1/models",
    "/health",
    "/ready",
    "/metrics",
    "/languages",
    "/openapi.json",
    "/page/%00",
    "/v1/%ff",
    "/v2/languages",
    "/v2/usage",
    "/v2/glossaries/%00",
    "/v2/glossaries/x/entries",
]
KINDS = [
    "application/json",
    "application/x-www-form-urlencoded",
    "text/plain",
    "multipart/form-data; boundary=x",
    "",
    "\x7f",
]
TEXTS = [
    "",
    "cab",
    "\0",
    "\u202e\u200f",
    "\ud800",
    "\udfff\ud800",
    "🙂",
    "a" * 20_000,
    "%",
    "é" * 50,
    "\n" * 99,
    "<b>",
    "../x",
]
NUMBERS = [0, -1, 1, 2, 3, 10**30, -(10**30), 1e308, float("nan"), float("inf"), 0.5, True]
FIELDS = [
    *("text", "q", "model", "to", "beam", "n_best", "prefix", "alignments", "sample", "temperature", "top_k", "top_p"),
    *("seed", "stream", "parts", "without", "target", "source", "format", "alternatives", "api_key"),
    *("donor", "tokens", "donor_tokens", "that", "position", "token"),
    *("target_lang", "source_lang", "tag_handling", "ignore_tags", "glossary_id", "name", "entries", "entries_format"),
]


def value(dice: random.Random, depth: int = 0) -> Any:
    kind = dice.randrange(6 if depth < 3 else 4)
    if kind == 0:
        return dice.choice(NUMBERS)
    if kind in (1, 2):
        return dice.choice(TEXTS)
    if kind == 3:
        return dice.choice([None, True, False])
    if kind == 4:
        return [value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return {dice.choice([*FIELDS, "", "\0", "x" * 500]): value(dice, depth + 1) for _ in range(dice.randrange(4))}


def body(dice: random.Random) -> bytes:
    kind = dice.randrange(10)
    if kind == 0:
        return dice.randbytes(dice.randrange(200))
    if kind == 1:
        return b"q=" + dice.randbytes(20) + b"&target=%ff&source=\x00&alternatives=" + b"9" * dice.randrange(5000)
    if kind == 2:
        return b'{"text": "' + b"a" * dice.choice([100_000, 1_000_000]) + b'"}'
    fields = {"text": dice.choice(TEXTS), "q": dice.choice(TEXTS)} if dice.random() < 0.7 else {}
    if dice.random() < 0.3:
        fields |= {"target_lang": "DE", "source_lang": "EN", "name": "x", "entries": "a\tb", "entries_format": "tsv"}
    fields |= {dice.choice(FIELDS): value(dice) for _ in range(dice.randrange(4))}
    written = json.dumps(fields, ensure_ascii=dice.random() < 0.7).encode("utf-8", "surrogatepass")
    return written[: dice.randrange(len(written))] if kind == 3 else written


def be_hostile(server: Server, requests: int, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(requests):
        method = dice.choice(["POST"] * 8 + ["GET", "PUT", "DELETE"])
        path = dice.choice(ROUTES * 3 + OTHERS)
        headers = {"Content-Type": dice.choice([*KINDS[:1] * 6, *KINDS])}
        sent = body(dice)
        found = server.call(method, path, sent, headers)
        assert found.status < 500, (method, path, headers, sent[:300], found.body)
        assert b"Traceback" not in found.body
        if found.status >= 400:
            of_deepl = path.startswith("/v2/") and headers["Content-Type"] != "\x7f"  # which is refused before any path
            assert list(found.json()) == ["message" if of_deepl else "error"]
            assert len(found.body) < 1000
    assert server.get("/ready").status == 200


def test_hostile_requests(server: Server):
    be_hostile(server, 300, 1)


@pytest.mark.slow
def test_ten_thousand_hostile_requests(server: Server):
    be_hostile(server, 10_000, 2)


@pytest.mark.skipif(importlib.util.find_spec("schemathesis") is None, reason="schemathesis is not installed")
@pytest.mark.parametrize(
    "options",
    [["--phases", "fuzzing", "--max-examples", "5"], pytest.param(["--max-examples", "100"], marks=pytest.mark.slow)],
)
def test_what_the_openapi_description_promises(server: Server, options: list[str]):
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    words = ["run", f"{server.url}/openapi.json", *options, "--checks", checks, "--seed", "1"]
    words += ["--generation-database", "none", "--no-color"]
    program = "import sys; from schemathesis.cli import schemathesis; schemathesis()"
    ended = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, timeout=3000
    )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
