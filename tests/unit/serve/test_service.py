"""What a request may ask, and who may ask it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

from seq2see.documents.glossary import Glossary
from seq2see.run import Run
from seq2see.serve import app
from seq2see.serve.jobs import Asked, Facts, Job, Slice
from seq2see.serve.limits import Keys, Limits, Rates, RefusedError
from seq2see.serve.service import Service, look_times


def refused(service: Service, address: str, key: str) -> int:
    """The status, 0 where it is let in."""
    try:
        service.admit((address, 1234), {b"x-api-key": key.encode()})
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


def test_a_stream_ends_in_an_error_past_the_deadline():
    left = []

    async def slow() -> Any:
        try:
            yield "token", {"text": "a"}
            await asyncio.Event().wait()
        finally:
            left.append(True)

    async def all_of_it() -> list[bytes]:
        return [event async for event in app.sent_events(slow(), asyncio.get_running_loop().time() + 0.05, 2)]

    first, last = asyncio.run(all_of_it())
    assert first.startswith(b"event: token\n")
    assert last.startswith(b"event: error\n")
    assert json.loads(last.split(b"data: ")[1]) == {"error": "no answer within 2 seconds", "status": 504}
    assert left


def test_an_engine_that_cannot_be_kept_is_said_to_have_failed(capsys):
    service, said = Service({}), []

    async def broken() -> str:
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
    assert "OSError in the queue of the engine (inside)" in capsys.readouterr().err


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


def test_a_request_counts_once_whatever_is_wrong_with_it(trained):
    from starlette.testclient import TestClient

    client = TestClient(app.build(Service({"run": Run(trained)}, rates=Rates(3, lambda: 0.0))))
    bodies = [b'{"text": 1}', b"{bad", b'{"text": "cab"}', b'{"text": "cab"}']
    kind = {"Content-Type": "application/json"}
    statuses = [client.post("/v1/translate", content=body, headers=kind).status_code for body in bodies]
    assert statuses == [400, 400, 503, 429]  # no engine is loaded


def loaded(trained: Path, rate: float, **limits: int) -> Service:
    """A service whose engines are said to be loaded and to do so much work a second."""
    service = Service({"run": Run(trained)}, limits=Limits(**limits))
    for lane in (service.quick, service.inside):
        lane.facts = {"run": Facts("played", 1.0, 10, rate)}
        lane.assume(rate)
    return service


def decided(service: Service, kind: Any, asked: Asked, **more: Any) -> tuple[str, Job]:
    """The lane that a request is given to, where it is the only one that waits, and its job."""

    async def decide() -> tuple[str, Job]:
        lane, job = service.decide(kind, asked, "somebody", **more)
        assert list(lane.queue) == [job]
        lane.queue.remove(job)
        return lane.name, job

    return asyncio.run(decide())


def test_each_look_is_done_alone(trained):
    service = loaded(trained, 1e6)
    keys = {decided(service, "look", Asked(["cab"]))[1].key for _ in range(2)}
    assert len(keys) == 2


DRAWN = {"seed": 1}


@pytest.mark.parametrize(
    ("kind", "asked", "lane", "slices"),
    [
        ("translate", Asked(["cab", "bad"]), "translate", 2),
        ("translate", Asked(["cab", "bad"], sampling=DRAWN), "inside", 1),
        ("translate", Asked(["cab", "bad"], alignments=True), "inside", 2),
        ("translate", Asked(["cab"], prefix="BA"), "inside", 1),
        ("chat", Asked(["cab"]), "translate", 1),
        ("chat", Asked(["cab"], sampling=DRAWN), "inside", 1),
        ("stream", Asked(["cab"]), "inside", 1),
        ("look", Asked(["cab"], parts=["summary"]), "inside", 1),
        ("look", Asked(["cab", "bad"], patch={"name": "encoder_norm"}), "inside", 1),
        ("look", Asked(["cab"], contrast={"that": "BAD"}), "inside", 1),
        ("detect", Asked(["cab", "bad"]), "translate", 1),
    ],
)
def test_each_kind_of_request_has_its_engine(trained, kind, asked, lane, slices):
    found, job = decided(loaded(trained, 1e6), kind, asked)
    assert (found, len(job.costs), job.client) == (lane, slices, "somebody")


@pytest.mark.parametrize(
    ("kind", "asked", "more", "status", "word"),
    [
        ("translate", Asked([]), {}, 400, "the list of texts is empty"),
        ("translate", Asked(["a"] * 5), {}, 413, "5 texts"),
        ("translate", Asked(["a" * 200]), {}, 413, "characters"),
        ("translate", Asked(["a"], prefix="a" * 200), {}, 413, "characters"),
        ("look", Asked(["a"], target="a" * 200), {}, 413, "characters"),
        ("translate", Asked(["\ud800"]), {}, 400, "surrogate"),
        ("translate", Asked(["a"], "de"), {}, 400, "one language"),
        ("translate", Asked(["a"], prefix="A한"), {}, 400, "the prefix has text without a token in the model: 한"),
        ("stream", Asked(["a"], prefix="A한"), {}, 400, "the prefix"),
        ("translate", Asked(["a"]), {"beam": 100}, 400, "is too large"),
        ("translate", Asked(["a"], n_best=100), {}, 400, "is too large"),
        ("translate", Asked(["a"]), {"model": "rum"}, 404, "Did you mean 'run'?"),
        ("translate", Asked(["a"], sampling=DRAWN, n_best=2), {}, 400, "n_best"),
        ("chat", Asked(["a"], sampling=DRAWN), {"beam": 2}, 400, "beam"),
        ("stream", Asked(["a", "b"]), {}, 400, "one text"),
        ("stream", Asked(["a"], alignments=True), {}, 400, "alignments"),
        ("stream", Asked(["a"]), {"beam": 2}, 400, "beam"),
        ("look", Asked([" "]), {}, 400, "empty"),
        ("look", Asked(["a"], target=" "), {}, 400, "empty"),
        ("look", Asked(["a", " "], patch={}), {}, 400, "empty"),
        ("look", Asked(["a"], contrast={"that": " "}), {}, 400, "empty"),
        ("look", Asked(["a"], contrast={"that": "a" * 200}), {}, 413, "characters"),
        ("look", Asked(["a"], contrast={"that": "\ud800"}), {}, 400, "surrogate"),
    ],
)
def test_what_cannot_be_answered_is_refused_before_it_waits(trained, kind, asked, more, status, word):
    service = loaded(trained, 1e6, texts=4, characters=100)
    with pytest.raises(RefusedError, match=word.replace("?", r"\?")) as refused:
        decided(service, kind, asked, **more)
    assert refused.value.status == status
    assert not any(len(lane.queue) for lane in service.lanes)


def test_nothing_is_taken_before_the_engine_is_loaded(trained):
    with pytest.raises(RefusedError, match="not loaded") as refused:
        decided(Service({"run": Run(trained)}), "translate", Asked(["cab"]))
    assert refused.value.status == 503


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
def test_long_requests_have_an_engine_of_their_own(trained, texts, beam, rate, expected):
    lane, job = decided(loaded(trained, rate, deadline=1000), "translate", Asked(texts), beam=beam)
    assert lane == expected
    assert len(job.costs) == len(texts)
    assert f"beam {beam}" in job.about


def test_unseen_characters_are_counted_as_the_tokens_that_they_are(trained):
    service = loaded(trained, 1e6)
    plain = decided(service, "translate", Asked(["abc" * 30]))[1].work
    assert decided(service, "translate", Asked(["日本語" * 30]))[1].work >= plain


def test_terms_cost_more_and_are_not_searched_together_with_texts_that_have_none(trained):
    service, lines = loaded(trained, 1e6), ["cab", "fade"]
    terms = [Glossary.of({"cab": "XYZ"}).terms_in(line) for line in lines]
    plain, with_terms = (decided(service, "translate", Asked(lines, terms=each))[1] for each in ((), terms))
    assert [with_terms.costs[0] > 2 * plain.costs[0], with_terms.costs[1] == plain.costs[1]] == [True, True]
    assert (plain.key.has_terms, with_terms.key.has_terms) == (False, True)
    assert Slice(with_terms, 1, 1, 2).asked.terms == [[]]
    none = decided(service, "translate", Asked(["fade"], terms=[[]]))[1]
    assert not none.key.has_terms


def test_clients_are_told_apart_by_their_keys_or_addresses():
    assert Service({}).admit(("10.0.0.7", 1234), {b"x-api-key": b"any"}) == "address 10.0.0.7"
    with_keys = Service({}, keys=Keys(["sesame"]))
    for headers, own in (
        ({b"authorization": b"Bearer sesame"}, None),
        ({b"x-api-key": b"sesame"}, None),
        ({b"x-api-key": b"wrong"}, "sesame"),
    ):
        assert with_keys.admit(("10.0.0.7", 1234), headers, own) == "key sesame"


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


def test_a_contrast_costs_more_than_a_look_and_a_patch_as_much_as_two(trained):
    service = loaded(trained, 1e6)

    def work(*lines: str, **asked: Any) -> int:
        return decided(service, "look", Asked(lines, **asked))[1].work

    assert work("cab", contrast={"that": "BAD"}) > work("cab", parts=["importance"]) > work("cab")
    assert work("cab", "cab", patch={}) == 2 * work("cab")
    assert work("cab", "a" * 90, patch={}) == work("cab") + work("a" * 90), "the factor of each line is its own"


def test_a_look_costs_more_than_a_translation_and_its_importance_grows_with_the_source():
    assert look_times(10, ["summary"]) > 1
    assert look_times(100, ["importance"]) > 5 * look_times(10, ["importance"]) / 2
    assert look_times(10_000, ["importance"]) < look_times(128, ["importance"])
    assert look_times(10, [], heads=48) > look_times(10, ["importance"]) > look_times(10, [], heads=0) - 1
