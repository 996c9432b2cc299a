"""`seq2see serve`, started as an operator does it, on a free port of this machine."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from serving import PATIENCE, Answer, Server, wait_until

import seq2see
from conftest import random_words
from seq2see.serve.limits import Limits

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

DEADLINE = 4
"""Seconds after which `torch_server` gives a request up."""


@pytest.fixture(scope="module")
def torch_server(trained: Path) -> Iterator[Server]:
    """Our own engine, with room for very little."""
    options = ["--queue", "3", "--deadline", DEADLINE, "--batch-tokens", "64", "--allow-origin", "https://example.org"]
    with Server(trained, "--engine", "torch", *options) as started:
        yield started


def lines_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_what_an_operator_asks(server: Server, trained: Path):
    assert server.get("/health").json() == {"status": "ok"}
    assert server.get("/ready").json() == {"status": "ready"}
    metrics = server.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'seq2see_ready{engine="translate"} 1.0' in metrics.body.decode()
    (model,) = server.get("/v1/models").json()["models"]
    assert model["name"] == "run"
    assert model["parameters"] > 1000
    assert model["examples"] == seq2see.load(trained).examples
    assert 1 <= len(model["examples"]) <= 4
    described = server.get("/openapi.json").json()
    assert described["info"]["title"] == "seq2see"
    assert {each["type"] for each in described["components"]["securitySchemes"].values()} == {"http", "apiKey"}
    for path in ("/v1/translate", "/translate", "/detect"):  # what is made from this can send keys
        assert [list(each) for each in described["paths"][path]["post"]["security"]] == [["Bearer"], ["X-API-Key"]]
    assert "security" not in described["paths"]["/health"]["get"]


def test_answers_are_those_of_the_command_line_in_any_company(server: Server, trained: Path, cli):
    words = ["", *random_words(60, 7)]
    expected = cli("translate", trained, stdin="\n".join(words).encode()).out.splitlines()

    def ask(index: int) -> str:
        found = server.post("/v1/translate", text=words[index])
        assert found.status == 200, found.body
        return str(found.json()["results"][0]["translations"][0]["text"])

    with ThreadPoolExecutor(16) as clients:
        assert list(clients.map(ask, range(len(words)))) == expected
    together = server.post("/v1/translate", text=words).json()
    assert [each["translations"][0]["text"] for each in together["results"]] == expected
    assert server.measure("seq2see_batch_requests_count") < server.measure("seq2see_batch_requests_sum")


def test_n_best_scores_and_alignments(server: Server, trained: Path, cli):
    said = cli("translate", trained, "--n-best", 3, "--alignments", "--json", stdin=b"cab\nfade\n").out
    found = server.post("/v1/translate", text=["cab", "fade"], n_best=3, alignments=True).json()
    assert [each["translations"] for each in found["results"]] == [each["translations"] for each in lines_of(said)]
    narrow = server.post("/v1/translate", text="cab", beam=1).json()["results"][0]["translations"]
    assert narrow == lines_of(cli("translate", trained, "--beam", 1, "--json", stdin=b"cab\n").out)[0]["translations"]


def test_a_prefix_is_kept(server: Server, trained: Path, cli):
    said = cli("translate", trained, "--prefix", "BA", "--json", stdin=b"cab\n").out
    found = server.post("/v1/translate", text="cab", prefix="BA").json()
    assert found["results"][0]["translations"] == lines_of(said)[0]["translations"]
    assert found["engine"] == "torch float32"


def test_drawn_with_a_seed_it_is_what_the_command_line_draws(server: Server, trained: Path, cli):
    options = ["--sample", "--temperature", 3, "--seed", 5]
    said = cli("translate", trained, *options, stdin=b"cab\n").out.rstrip("\n")
    drawn = {"sample": True, "temperature": 3.0, "seed": 5}
    assert server.post("/v1/translate", text="cab", **drawn).json()["results"][0]["translations"][0]["text"] == said
    events = events_of(server.post("/v1/translate", text="cab", stream=True, **drawn).body)
    assert events[-1][1]["text"] == said


def events_of(body: bytes) -> list[tuple[str, dict[str, object]]]:
    found = []
    for block in body.decode().strip().split("\n\n"):
        kind, data = block.split("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_tokens_are_streamed(server: Server, trained: Path, cli):
    said = cli("translate", trained, "--engine", "torch", "--beam", 1, stdin=b"fade\n").out.rstrip("\n")
    found = server.post("/v1/translate", text="fade", stream=True)
    assert found.headers["content-type"].startswith("text/event-stream")
    *tokens, (last, end) = events_of(found.body)
    assert {kind for kind, _ in tokens} == {"token"}
    assert len(tokens) > 1
    assert last == "end"
    assert end["text"] == tokens[-1][1]["text"] == said
    assert server.post("/v1/translate", text=["a", "b"], stream=True).status == 400


def test_chat(server: Server, trained: Path, cli):
    assert server.post("/v1/chat", text=" cab ").json()["answer"] == cli("chat", trained, stdin=b" cab \n").out.strip()
    found = server.post("/v1/chat", text="안녕하세요").json()
    assert found["answer"] == ""
    assert "not seen such text" in found["note"]
    events = events_of(server.post("/v1/chat", text="cab", stream=True).body)
    assert events[-1][0] == "end"
    assert events[-1][1]["text"] == cli("chat", trained, "--beam", 1, "--engine", "torch", stdin=b"cab\n").out.strip()


def test_the_inside_part_by_part(server: Server, trained: Path, cli):
    expected = json.loads(cli("look", trained, "cab", "--json").out)
    first = server.post("/v1/look", text="cab").json()
    assert first["parts"] == {"summary": expected["summary"]}
    assert set(first["names"]) == set(expected)
    for name in first["names"]:
        assert server.post("/v1/look", text="cab", parts=[name]).json()["parts"] == {name: expected[name]}
    assert server.post("/v1/look", text="cab", parts=["secrets"]).status == 400
    forced = server.post("/v1/look", text="cab", target="BAC").json()["parts"]["summary"]
    assert forced["translation"] == "BAC"
    off = [{"place": "cross", "layer": 0, "head": head} for head in (0, 1)]
    without = server.post("/v1/look", text="cab", without=off, parts=["candidates"]).json()
    assert without["parts"]["candidates"] != expected["candidates"]
    assert server.post("/v1/look", text="cab", without=[off[0] | {"head": 9}]).status == 400


def test_documents(server: Server):
    found = server.post(
        "/v1/translate", text=["<p><b>cab</b></p>\n<p>bad</p>", "<p>cab</p>"], markup="html", n_best=2
    ).json()
    first, second = found["results"]
    assert first["translations"][0]["text"] == "<p><b>CAB</b></p>\n<p>BAD</p>"
    assert len(first["translations"]) == 2
    assert (first["counts"]["sentences"], second["counts"]["sentences"]) == (2, 1)
    assert first["source_tokens"] == 8
    for wrong in ({"stream": True}, {"beam": 2}, {"prefix": "A"}, {"model": "none"}):
        assert server.post("/v1/translate", text="cab", markup="plain", **wrong).status in (400, 404)
    assert server.post("/v1/translate", text="cab", markup="htm").status == 400


def test_as_libretranslate(server: Server):
    found = server.post("/translate", q="cab", source="auto", target="en", format="text", api_key="").json()
    assert found["translatedText"] == "CAB"
    assert found["detectedLanguage"] == {"confidence": 100.0, "language": "und"}
    form = urlencode({"q": "fade", "source": "en", "target": "de"}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert server.call("POST", "/translate", form, headers).json() == {"translatedText": "FADE"}
    parts = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in (("q", "bad"), ("q", "fade"), ("source", "en"), ("target", "de"), ("alternatives", 1))
    )
    sent = server.call(
        "POST", "/translate", f"{parts}--x--\r\n".encode(), {"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert sent.json()["translatedText"] == ["BAD", "FADE"]
    several = server.post("/translate", q=["cab", "bad"], source="en", target="de", alternatives=2).json()
    assert several["translatedText"] == ["CAB", "BAD"]
    assert [len(each) for each in several["alternatives"]] == [2, 2]
    lines = server.post("/translate", q="\n cab \n\nbad\n", source="en", target="de").json()
    assert lines["translatedText"] == "\n CAB \n\nBAD\n"
    page = server.post("/translate", q="<p class='cab'><b>bad</b></p>fade", source="en", target="de", format="html")
    assert page.json()["translatedText"] == "<p class='cab'><b>BAD</b></p>FADE"
    assert server.get("/languages").json() == [{"code": "und", "name": "Unknown", "targets": ["und"]}]
    assert server.post("/detect", q="cab").json() == [{"confidence": 100.0, "language": "und"}]
    missing = server.post("/translate", source="en", target="de")
    assert (missing.status, list(missing.json())) == (400, ["error"])


def test_headers_keep_a_browser_safe(server: Server):
    for found in (server.get("/"), server.get("/nowhere"), server.post("/v1/translate", text="cab")):
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in found.headers["content-security-policy"]
        assert "server" not in found.headers
    assert b"http" not in server.get("/").body.replace(b"http-equiv", b"")


NASTY = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"\x00",
    b"\xff\xfe{",
    b"[" * 100_000,
    b'{"text": ' + b"[" * 50_000,
    b'{"text": 5}',
    b'{"text": null}',
    b'{"text": {}}',
    b'{"text": [1]}',
    b'{"text": []}',
    b'{"text": "\\ud800"}',
    b'{"text": "\xed\xa0\x80"}',
    b'{"text": "a", "beam": 0}',
    b'{"text": "a", "beam": 1e9}',
    b'{"text": "a", "beam": 999999999999999999999999999999}',
    b'{"text": "a", "beam": ' + b"9" * 10_000 + b"}",
    b'{"text": "a", "beam": 1.5}',
    b'{"text": "a", "beam": true}',
    b'{"text": "a", "beam": NaN}',
    b'{"text": "a", "n_best": 100000}',
    b'{"text": "a", "sample": true, "temperature": Infinity}',
    b'{"text": "a", "sample": true, "temperature": 0}',
    b'{"text": "a", "sample": true, "seed": -1}',
    b'{"text": "a", "sample": true, "seed": 99999999999999999999}',
    b'{"text": "a", "sample": true, "n_best": 2}',
    b'{"text": "a", "model": "../../etc/passwd"}',
    b'{"text": "a", "model": "/etc/passwd"}',
    b'{"text": "a", "to": "xx"}',
    b'{"text": "a", "unknown": 1}',
    b'{"text": "a", "\xe2\x80\xae": 1}',
    b'{"text": "' + b"a" * 20_000 + b'"}',
    b'{"text": "' + b"a" * 1_000_000 + b'"}',
    b'{"text": ["a", "' + b'", "'.join([b"b"] * 200) + b'"]}',
    b'{"text": "a"',
]


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/chat", "/v1/look", "/translate", "/detect"])
def test_nasty_bodies_are_refused_in_a_line(server: Server, path: str):
    for body in NASTY:
        if path in ("/translate", "/detect"):
            body = body.replace(b'"text"', b'"q"')
            if any(
                word in body for word in (b"beam", b"n_best", b"sample", b"model", b"unknown", b'"to"', b"\x80\xae")
            ):
                continue
        if path in ("/v1/chat", "/detect") and body.startswith(b'{"text": ["a'):
            continue
        found = server.call("POST", path, body, {"Content-Type": "application/json"})
        assert 400 <= found.status < 500, body[:80]
        assert list(found.json()) == ["error"], body[:80]
        assert "Traceback" not in found.body.decode()
        assert len(found.body) < 500
    assert server.post("/v1/translate", text="cab").status == 200


ODD_TEXTS = [
    "\0",
    "a\0b",
    "\u202ecab\u202c",
    "\ufeff",
    "\ufffd",
    "🙂" * 50,
    "a" * 5000,
    " ",
    "\n\n",
    "\t",
    "\u2028",
    "e\u0301",
]


@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
def test_odd_texts_are_answered(server: Server, text: str):
    for path, name in (("/v1/translate", "text"), ("/v1/chat", "text"), ("/translate", "q"), ("/detect", "q")):
        found = server.post(path, **{name: text})
        assert found.status == 200
    assert server.post("/v1/look", text=text).status in (200, 400)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET\r\n\r\n",
        b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 300_000,
        random.Random(1).randbytes(5000),
    ],
)
def test_what_is_no_http_is_refused(server: Server, raw: bytes):
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        try:
            connection.sendall(raw)
            answer = connection.recv(65536)
        except ConnectionError:
            answer = b""
    assert not answer or answer.split()[1][:1] == b"4", answer[:200]
    assert server.get("/health").status == 200


def test_head_is_get_without_a_body(server: Server):
    assert server.call("HEAD", "/health") == server.call("HEAD", "/health")._replace(status=200, body=b"")
    assert server.call("HEAD", "/v1/translate").status == 405


def test_methods_and_places_that_are_not_there(server: Server):
    for method, path in (
        ("GET", "/v1/translate"),
        ("DELETE", "/translate"),
        ("GET", "/etc/passwd"),
        ("GET", "/page/x"),
    ):
        found = server.call(method, path)
        assert found.status in (404, 405)
        assert list(found.json()) == ["error"]
    assert server.get("/page/page.js").headers["content-type"].startswith("text/javascript")
    for path in ("/page/..%2f..%2fapp.py", "/../app.py", "/page/index.html%00"):
        assert server.get(path).status == 404
    assert server.call("POST", "/v1/translate", b"text=cab", {"Content-Type": "text/plain"}).status == 415
    assert server.call("POST", "/translate", b"<q/>", {"Content-Type": "text/xml"}).status == 415


def test_no_text_is_logged(server: Server):
    refused = server.log().count("POST /v1/translate 400")
    server.post("/v1/translate", text="gabcafed")
    server.get("/gabcafed?q=gabcafed")
    server.post("/v1/translate", text="gabcafed", model="gabcafed", gabcafed=1)
    wait_until(lambda: server.log().count("POST /v1/translate 400") > refused, server.log)
    assert "gabcafed" not in server.log()


LONG = ["abcdefgh" * 2] * 5


def flooded(server: Server, clients: int, seconds: float) -> tuple[float, list[int], float]:
    """Answers for each second that server and engine had of a core; all statuses; the longest wait."""
    ends, before = time.monotonic() + seconds, server.work()
    statuses: list[int] = []
    slowest = 0.0

    def ask(number: int) -> None:
        nonlocal slowest
        while time.monotonic() < ends:
            begun = time.monotonic()
            found = server.post("/v1/translate", text=LONG)
            slowest = max(slowest, time.monotonic() - begun)
            statuses.append(found.status)
            if found.status == 429:
                assert int(found.headers["retry-after"]) >= 1
                time.sleep(0.2)

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(ask, range(clients)))
    return statuses.count(200) / (server.work() - before), statuses, slowest


@pytest.mark.parametrize("seconds", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_under_overload_every_request_is_answered_in_time(torch_server: Server, seconds: int):
    """Three may wait, twenty ask again and again: a short form of `bench.serve overload`."""
    # The engine for long requests is started by the first of them, which may take a busy machine ten seconds.
    wait_until(lambda: torch_server.post("/v1/translate", text=LONG).status == 200)
    peak, few, _ = flooded(torch_server, 4, seconds / 2)
    memory = torch_server.memory()
    rate, many, slowest = flooded(torch_server, 20, seconds)
    assert {*few, *many} <= {200, 429, 503, 504}
    assert 429 in many
    assert torch_server.memory() < 1.05 * memory
    torch_server.wait_until_ready()
    wait_until(lambda: torch_server.post("/v1/translate", text="cab").status == 200)
    if seconds > 5:  # a short time tells little on a busy machine
        assert set(few) <= {200, 429}
        assert 200 in many
        assert slowest < DEADLINE + 2  # the deadline, and a while for a busy machine to say so
        assert rate > peak / 2  # by the work of the server, whatever else the machine does


SEARCHED = [{"text": "cab", "beam": beam} for beam in (1, 2)]
DRAWN = [{"text": "cab", "sample": True}] * 2
"""Two requests each to one engine that share no batch."""


def send(
    clients: ThreadPoolExecutor, server: Server, engine: str, bodies: list[dict[str, object]]
) -> list[Future[Answer]]:
    """Send two such requests while the engine is stopped: one is at the engine when the other stays in the queue.

    If the engine was stopped before the server knew that its work was done, both stay in the queue, until their
    deadline.
    """
    queue = f'seq2see_queue_requests{{engine="{engine}"}}'
    sent = [clients.submit(server.post, "/v1/translate", **body) for body in bodies]
    wait_until(
        lambda: all(server.measure(queue) == 1 for _ in range(10)) or all(each.done() for each in sent),
        lambda: server.get("/metrics").body.decode(),
    )
    return sent


def stop(server: Server, engine: str, body: dict[str, object]) -> int:
    """Stop an engine that has just finished its work: for five seconds it is not asked whether it is still there."""
    batches = f'seq2see_batch_requests_count{{engine="{engine}"}}'
    before = server.measure(batches)
    wait_until(lambda: server.post("/v1/translate", **body).status == 200)
    server.wait_for_measure(batches, before + 1)  # counted when the engine says so, after the answer
    os.kill(server.engines()[engine], signal.SIGSTOP)
    return server.engines()[engine]


def killed_at_work(server: Server, engine: str, bodies: list[dict[str, object]]) -> Answer:
    """Kill an engine while two requests wait for it; return the answer to the one that it was working on.

    On a busy machine the kill may come before that request has reached the engine: both are then answered later; or the
    new engine is loaded too late for the other one, which gets 504.
    """
    with ThreadPoolExecutor(2) as clients:
        pid = stop(server, engine, bodies[0])
        asked = send(clients, server, engine, bodies)
        os.kill(pid, signal.SIGKILL)
        assert server.get("/health").status == 200
        return max((each.result() for each in asked), key=lambda answer: (answer.status == 503, answer.status))


def test_a_dead_engine_is_replaced(torch_server: Server):
    restarts = torch_server.measure("seq2see_engine_restarts_total")
    kills = 0
    for engine, bodies in (("translate", SEARCHED), ("inside", DRAWN)):
        for _ in range(5):
            found = killed_at_work(torch_server, engine, bodies)
            kills += 1
            if found.status == 503:
                break
            torch_server.wait_until_ready()
        assert found.status == 503
        assert "retry-after" in found.headers
        assert "being started again" in found.json()["error"]
    torch_server.wait_until_ready()
    for bodies in (SEARCHED, DRAWN):
        assert torch_server.post("/v1/translate", **bodies[0]).status == 200
    assert torch_server.measure("seq2see_engine_restarts_total") == restarts + kills


def hang_up(server: Server) -> float:
    """Stop the engine, send three requests, one of which waits in the engine and two before it, and close their
    connections; return how many the server then counts as abandoned.

    On a busy machine some of them may reach their deadline before, so that fewer are abandoned.
    """
    before = server.measure("seq2see_abandoned_total")
    address = urlsplit(server.url)
    body = json.dumps({"text": ["abcdefgh" * 2] * 2, "beam": 1}).encode()
    head = "POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    ends = time.monotonic() + DEADLINE

    def wait_for(name: str, least: float) -> None:
        while server.measure(name) < least and time.monotonic() < ends:
            time.sleep(0.02)

    engine = server.engines()["translate"]
    os.kill(engine, signal.SIGSTOP)
    try:
        with contextlib.ExitStack() as clients:
            for waiting in range(3):
                connection = socket.create_connection((address.hostname, address.port), timeout=PATIENCE)
                clients.enter_context(connection).sendall(head.encode() + body)
                wait_for("seq2see_queue_requests", waiting)
        wait_for("seq2see_abandoned_total", before + 3)
        return server.measure("seq2see_abandoned_total") - before
    finally:
        os.kill(engine, signal.SIGCONT)


def test_whoever_hangs_up_leaves_the_line(torch_server: Server):
    for _ in range(5):
        abandoned = hang_up(torch_server)
        if abandoned == 3:
            break
        torch_server.wait_until_ready()
    assert abandoned == 3
    assert torch_server.measure("seq2see_queue_requests") == 0
    assert torch_server.measure("seq2see_queue_tokens") == 0
    assert torch_server.post("/v1/translate", text="cab").status == 200


def test_past_its_deadline_a_request_is_given_up_and_a_stream_says_so(torch_server: Server):
    engines = torch_server.engines().values()
    for pid in engines:
        os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(2) as clients:
            asked = [
                clients.submit(torch_server.post, "/v1/translate", text="cab", stream=each) for each in (False, True)
            ]
            found, streamed = [each.result() for each in asked]
    finally:
        for pid in engines:
            os.kill(pid, signal.SIGCONT)
    assert (found.status, found.json()) == (504, {"error": f"no answer within {DEADLINE} seconds"})
    assert events_of(streamed.body) == [("error", {"error": f"no answer within {DEADLINE} seconds", "status": 504})]
    torch_server.wait_until_ready()
    assert torch_server.post("/v1/translate", text="cab").status == 200


def test_where_many_wait_to_be_translated_others_need_not(torch_server: Server):
    engine = torch_server.engines()["translate"]
    paths = ("/v1/translate", "/v1/chat")
    os.kill(engine, signal.SIGSTOP)
    with ThreadPoolExecutor(8) as clients:  # some are worked on, three wait, the rest are refused
        try:
            waiting = [clients.submit(torch_server.post, "/v1/translate", text="cab") for _ in range(8)]
            torch_server.wait_for_measure("seq2see_queue_requests", 3)
            assert [torch_server.post(path, text="cab").status for path in paths] == [429, 429]
            for path in paths:
                assert events_of(torch_server.post(path, text="cab", stream=True).body)[-1][0] == "end"
                assert torch_server.post(path, text="cab", sample=True).status == 200
        finally:
            os.kill(engine, signal.SIGCONT)
        assert {each.result().status for each in waiting} <= {200, 429, 504}
    torch_server.wait_until_ready()


def test_pages_of_other_sites(trained: Path, server: Server, torch_server: Server, cli):
    body, kind = b'{"text": "cab"}', {"Content-Type": "application/json"}
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        found = server.call("POST", "/v1/translate", body, kind | headers)
        assert (found.status, list(found.json())) == (403, ["error"])
    own = {"Origin": server.url}
    assert server.call("POST", "/v1/translate", body, kind | own).status == 200
    asked = {"Origin": "https://example.org"}
    before = torch_server.call("OPTIONS", "/translate", None, asked | {"Access-Control-Request-Method": "POST"})
    assert before.status == 204
    found = torch_server.call("POST", "/translate", b'{"q": "cab", "source": "en", "target": "de"}', kind | asked)
    assert found.json() == {"translatedText": "CAB"}
    for each in (before, found):
        assert each.headers["access-control-allow-origin"] == "https://example.org"
    wrong = cli("serve", trained, "--allow-origin", "example.org")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("deadline", ["inf", "nan", "0", "1e9"])
def test_a_deadline_is_a_number_of_seconds(trained: Path, cli, deadline: str):
    found = cli("serve", trained, "--deadline", deadline)
    assert found.code == 2
    assert "--deadline" in found.err
    assert "Traceback" not in found.err


def test_keys_rates_and_sizes(trained: Path, tmp_path: Path):
    keys = tmp_path / "keys"
    keys.write_text("# of Ada\nopen sesame\n", encoding="utf-8")
    with Server(trained, "--api-keys", keys, "--rate-limit", "7", "--max-characters", "20", "--quiet") as server:
        body, kind = b'{"text": "cab"}', {"Content-Type": "application/json"}
        nobody = server.call("POST", "/v1/translate", body, kind)
        assert nobody.status == 401
        assert nobody.headers["www-authenticate"] == "Bearer"
        assert server.call("POST", "/v1/translate", body, kind | {"X-API-Key": "open"}).status == 403
        assert server.post("/translate", q="cab", api_key="open sesame ").status == 403
        assert server.get("/metrics").status == 401
        assert server.get("/health").status == 200
        for path in ("/v1/translate", "/translate"):  # who has no key is not told what else is wrong
            assert server.call("POST", path, b"{bad", kind).status in (401, 429)
            assert server.call("POST", path, b"{bad", kind | {"X-API-Key": "open sesame"}).status == 400
        assert server.post("/translate", q="cab", api_key="open sesame").status == 200
        right = kind | {"Authorization": "Bearer open sesame"}
        assert server.call("POST", "/v1/translate", b'{"text": "abcabcabcabcabcabcabcabc"}', right).status == 413
        statuses = [server.call("POST", "/v1/translate", body, right).status for _ in range(4)]
        assert statuses == [200, 200, 200, 429]


def test_the_operator_sets_how_much_a_request_may_ask(monkeypatch: pytest.MonkeyPatch, cli):
    given: list[Limits] = []
    monkeypatch.setattr("seq2see.serve.server.serve", lambda *words: given.append(words[7]))
    assert cli("serve", "run", "--max-texts", 2, "--max-beam", 3, "--max-output-tokens", 4).code == 0
    assert cli("serve", "run").code == 0
    assert given == [Limits(texts=2, beam=3, output_tokens=4), Limits()]


def test_sigterm_lets_requests_be_answered(trained: Path):
    with Server(trained, "--quiet") as server, ThreadPoolExecutor(2) as clients:
        address = urlsplit(server.url)
        engine = stop(server, "translate", SEARCHED[0])
        try:
            asked = send(clients, server, "translate", SEARCHED)
            server.process.send_signal(signal.SIGTERM)

            def is_ending() -> bool:
                with socket.socket() as other:
                    return other.connect_ex((address.hostname, address.port)) != 0

            wait_until(is_ending)
        finally:
            os.kill(engine, signal.SIGCONT)
        assert [each.result().status for each in asked] == [200, 200]
        assert server.process.wait(PATIENCE) == 143


def test_two_runs_and_mistakes_of_the_operator(trained: Path, tmp_path: Path, cli):
    other = shutil.copytree(trained, tmp_path / "other")
    with Server(trained, other, "--quiet", "--log-texts") as server:
        assert [each["name"] for each in server.get("/v1/models").json()["models"]] == ["run", "other"]
        assert server.post("/v1/translate", text="cab", model="other").json()["model"] == "other"
        assert server.post("/v1/translate", text="cab", model="othr").json()["error"].endswith("Did you mean 'other'?")
        assert server.post("/translate", q="cab", model="other").json()["translatedText"] == "CAB"
        assert server.post("/translate", q="cab", model="othr").status == 404
        server.wait_for_log('"text": "cab", "answers": ["CAB"]')
        port = urlsplit(server.url).port
        taken = cli("serve", trained, "--port", port)
        assert (taken.code, taken.err.count("\n")) == (2, 1)
        assert "in use" in taken.err
    assert "no such run folder" in cli("serve", tmp_path / "nothing").err
    assert "second run with the name 'run'" in cli("serve", trained, trained).err
    (tmp_path / "none").write_text("\n", encoding="utf-8")
    assert "contains no key" in cli("serve", trained, "--api-keys", tmp_path / "none").err
    (other / "target.tokenizer.json").unlink()
    assert "target.tokenizer.json: is missing" in cli("translate", other, stdin=b"cab").err
    (other / "model.safetensors").write_bytes(b"broken")
    for engines in other.glob("engines"):
        shutil.rmtree(engines)
    broken = subprocess.run(
        [sys.executable, "-m", "seq2see", "serve", str(other), "--port", "0"], capture_output=True, text=True
    )
    assert broken.returncode == 2
    assert broken.stderr.splitlines()[-1].startswith("seq2see: ")
    assert "Traceback" not in broken.stderr


HURRIED = """
import sys
from seq2see.serve import server
from seq2see.serve.limits import Limits

server.IDLE_SECONDS = 0.5
server.serve(sys.argv[1:2], port=0, limits=Limits(deadline=1, body_seconds=0.5), log=False)
"""


def received(connection: socket.socket) -> int:
    """Number of bytes that a closed connection still has for its reader."""
    found = 0
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(1 << 20):
            found += len(data)
    return found


def test_slow_clients_do_no_harm(trained: Path):
    """Slow headers, slow bodies, slow readers: others are served meanwhile, and they themselves not for ever."""
    with Server(trained, program=HURRIED) as server, contextlib.ExitStack() as clients:
        address, files = urlsplit(server.url), Path(f"/proc/{server.process.pid}/fd")
        at_rest = len(list(files.iterdir()))

        def client(begins: bytes) -> socket.socket:
            made = clients.enter_context(socket.socket())
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.settimeout(PATIENCE)
            made.connect((address.hostname, address.port))
            made.sendall(begins)
            return made

        slow_headers = [client(b"POST /v1/translate HTTP/1.1\r\nHost: local") for _ in range(20)]
        head = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{"
        slow_bodies = [client(head) for _ in range(20)]
        # Each asks for many megabytes, and reads nothing.
        slow_readers = [client(b"GET /page/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300) for _ in range(3)]
        assert server.get("/ready").status == 200
        assert {each.recv(100)[:12] for each in slow_bodies} == {b"HTTP/1.1 408"}
        assert {each.recv(100) for each in slow_headers} == {b""}
        wait_until(lambda: len(list(files.iterdir())) <= at_rest, lambda: "who does not read is not cut off")
        size = len(server.get("/page/page.js").body)
        assert all(received(each) < 300 * size for each in slow_readers)
        assert server.get("/ready").status == 200
        assert "Traceback" not in server.log()
