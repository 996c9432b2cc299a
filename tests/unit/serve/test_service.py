"""What a request may ask, and who may ask it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from seq2see.run import Run
from seq2see.serve import app
from seq2see.serve.batching import Job
from seq2see.serve.engine_process import Facts
from seq2see.serve.guard import Late
from seq2see.serve.limits import Keys, Rates, RefusedError
from seq2see.serve.service import Service


def refused(service: Service, address: str, key: str) -> int:
    """The status, 0 where it is let in."""
    try:
        service.admit({"x-api-key": key}, (address, 1234))
    except RefusedError as refusal:
        return refusal.status
    return 0


def test_wrong_keys_are_counted_by_address():
    service = Service({}, keys=Keys(["right"]), rates=Rates(2, lambda: 0.0))
    assert [refused(service, "10.0.0.1", f"wrong {number}") for number in range(3)] == [403, 403, 429]
    assert refused(service, "10.0.0.2", "wrong") == 403
    assert [refused(service, "10.0.0.1", "right") for _ in range(3)] == [0, 0, 429]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("no address", "none", False),
    ],
)
def test_rates_are_those_of_a_network(one, other, same):
    service = Service({}, rates=Rates(1, lambda: 0.0))
    assert refused(service, one, "") == 0
    assert refused(service, other, "") == (429 if same else 0)


def test_each_look_is_done_alone(trained: Path, monkeypatch):
    service = Service({"run": Run(trained)})
    service.inside.facts = {"run": Facts("played", 1.0)}
    asked: list[Job] = []

    async def do(job: Job) -> bytes:
        asked.append(job)
        return b"{}"

    monkeypatch.setattr(service.inside, "do", do)

    async def look_twice() -> None:
        for _ in range(2):
            await service.look("cab", None, None, None, [], [])

    asyncio.run(look_twice())
    assert asked[0].key != asked[1].key


def test_a_stream_ends_in_an_error_past_the_deadline():
    left = []

    async def slow() -> Any:
        try:
            yield "token", {"text": "a"}
            await asyncio.Event().wait()
        finally:
            left.append(True)

    async def all_of_it() -> list[bytes]:
        late = Late(asyncio.get_running_loop().time() + 0.05, RefusedError(504, "too late"))
        return [event async for event in app._sent(slow(), late)]

    first, last = asyncio.run(all_of_it())
    assert first.startswith(b"event: token\n")
    assert last.startswith(b"event: error\n")
    assert json.loads(last.split(b"data: ")[1]) == {"error": "too late", "status": 504}
    assert left


def test_an_engine_that_cannot_be_kept_is_said_to_have_failed(capsys):
    service, said = Service({}), []

    async def broken() -> None:
        raise OSError

    for lane in service.lanes:
        lane.run = broken  # type: ignore[method-assign]

    async def begin_and_end() -> None:
        messages = iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive() -> dict[str, str]:
            await asyncio.sleep(0)
            return {"type": next(messages)}

        async def send(message: Any) -> None:
            await asyncio.sleep(0.01)

        await app.build(service, failed=said.append)({"type": "lifespan"}, receive, send)

    asyncio.run(begin_and_end())
    assert [line.partition(" cannot")[0] for line in said] == ["the engine (translate)", "the engine (inside)"]
    assert "OSError in the line before the engine (inside)" in capsys.readouterr().err


def test_a_route_that_fails_answers_in_json_and_says_nothing_of_it(capsys, monkeypatch):
    from starlette.testclient import TestClient

    service = Service({})

    def broken(client: Any) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(service, "count", broken)
    found = TestClient(app.build(service), raise_server_exceptions=False).get("/nowhere")
    assert (found.status_code, list(found.json())) == (500, ["error"])
    assert "KeyError" in capsys.readouterr().err
    assert "secret" not in found.text


@pytest.mark.parametrize("path", ["/", "/page/page.js", "/nowhere", "/v1/translate", "/languages", "/openapi.json"])
def test_every_request_counts_except_those_of_a_watchman(path):
    from starlette.testclient import TestClient

    service = Service({}, rates=Rates(2, lambda: 0.0))
    client = TestClient(app.build(service))
    assert [client.get(path).status_code == 429 for _ in range(3)] == [False, False, True]
    assert client.get("/health").status_code == 200
    assert client.get("/ready").status_code == 503  # no engine is loaded
