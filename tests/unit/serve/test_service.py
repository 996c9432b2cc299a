"""What a request may ask, and who may ask it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from seq2see.run import Run
from seq2see.serve import app
from seq2see.serve.engine_process import Facts
from seq2see.serve.fair_queue import Job
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

    async def do(job: Job) -> list[bytes]:
        asked.append(job)
        return [b"{}"]

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
    assert [line.partition(" cannot")[0] for line in said] == [
        f"the engine ({name})" for name in ("translate", "inside", "long")
    ]
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


def loaded(trained: Path, rate: float) -> Service:
    """A service whose engines are said to be loaded and to do so much work a second."""
    service = Service({"run": Run(trained)})
    for lane in (service.quick, service.inside):
        lane.facts = {"run": Facts("played", 1.0, 1.0, 10, rate)}
        lane.assume(rate)
    return service


def asked_of(service: Service, monkeypatch: pytest.MonkeyPatch, *texts: str, **more: Any) -> tuple[str, Job]:
    """Which lane is given a request to translate, and what it is given."""
    found: list[tuple[str, Job]] = []
    for lane in service.lanes:

        async def do(job: Job, name: str = lane.name) -> list[Any]:
            found.append((name, job))
            return [("played", [{"translations": []} for _ in job.what["lines"]])]

        monkeypatch.setattr(lane, "do", do)
    asyncio.run(service.translate(texts, **more))
    return found[0]


@pytest.mark.parametrize(
    ("texts", "beam", "rate", "expected"),
    [
        (["cab"], 1, 100.0, "translate"),
        (["cab"], 1, 0.1, "translate"),
        (["abcdefgh" * 20] * 10, 10, 100.0, "long"),
        (["abcdefgh" * 20] * 10, 10, 1e6, "translate"),
        (["abcdefgh" * 20] * 10, 10, 0.0, "translate"),
        (["a"] * 100, 10, 100.0, "long"),
    ],
    ids=["ordinary", "ordinary, slow engine", "long", "long, fast engine", "long, not measured", "many tiny ones"],
)
def test_long_requests_have_an_engine_of_their_own(trained, monkeypatch, texts, beam, rate, expected):
    lane, job = asked_of(loaded(trained, rate), monkeypatch, *texts, beam=beam)
    assert lane == expected
    assert len(job.costs) == len(texts)
    assert f"beam {beam}" in job.about


def test_texts_that_are_drawn_are_not_split(trained, monkeypatch):
    lane, job = asked_of(loaded(trained, 1e6), monkeypatch, "cab", "bad", sampling={"seed": 1})
    assert (lane, len(job.costs)) == ("inside", 1)


def test_unseen_characters_are_counted_as_the_tokens_that_they_are(trained, monkeypatch):
    service = loaded(trained, 1e6)
    plain = asked_of(service, monkeypatch, "abc" * 30)[1].work
    assert asked_of(service, monkeypatch, "日本語" * 30)[1].work >= plain


def test_jobs_are_those_of_the_client_that_was_admitted(trained, monkeypatch):
    service = loaded(trained, 1e6)
    service.admit({}, ("10.0.0.7", 1234))
    assert asked_of(service, monkeypatch, "cab")[1].client == "address 10.0.0.7"


def test_why_an_engine_is_not_loaded_is_said_without_paths(trained):
    service = loaded(trained, 1.0)
    assert service.obstacle is None
    service.quick.facts = {}
    assert service.obstacle == "the engine (translate) is not loaded"
    service.quick.problem = f"{trained.absolute()}/model.safetensors: damaged"
    assert service.obstacle == "the engine (translate) is not loaded: run/model.safetensors: damaged"
    service.quick.facts, service.quick.problem = service.inside.facts, None
    service.long.problem = "no memory"  # others are answered all the same
    assert service.obstacle is None
