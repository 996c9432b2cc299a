"""Activations patched and outputs contrasted over HTTP: known results, controls without effect, and bad requests."""

import calendar
import json
from pathlib import Path

import pytest
from serving import Server

from conftest import TINY
from seq2see.run import load

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")


@pytest.fixture(scope="module")
def dates(tmp_path_factory):
    """A server of a tiny model of dates: `March,12,1987` to `1987-03-12`, in which each word is a token."""
    from seq2see import api

    folder = tmp_path_factory.mktemp("dates")
    lines = [
        f"{calendar.month_name[month]},{day},{year}\t{year}-{month:02}-{day:02}\n"
        for month in range(1, 13)
        for day in range(1, 29)
        for year in (1987, 1999, 2004, 2031)
    ]
    (folder / "dates.tsv").write_text("".join(lines), encoding="utf-8")
    tokens = {f"{side}_tokenizer": "pattern" for side in ("source", "target")}
    tokens |= {f"{side}_pattern": "words" for side in ("source", "target")}
    training = TINY["training"] | {"max_steps": 200, "validate_every": 200, "average": 1, "seed": 1}
    settings = {"data": tokens, "model": TINY["model"], "training": training}
    run = api.train(folder / "dates.tsv", folder / "run", settings=settings)
    with Server(run.folder) as started:
        yield started


ONE, TWO = ("March,12,1987", "1987-03-12"), ("June,5,2004", "2004-06-05")


def test_exchanged_encoder_states_of_the_month_exchange_the_months_and_those_of_a_comma_nothing(dates: Server):
    def translated(text: str, donor: str, tokens: object, donor_tokens: object) -> list[str]:
        found = dates.post("/v1/patch", text=text, donor=donor, tokens=tokens, donor_tokens=donor_tokens).json()
        return [found["own_translation"], found["translation"]]

    assert translated(ONE[0], TWO[0], "March", "June") == [ONE[1], "1987-06-12"]
    assert translated(TWO[0], ONE[0], "June", "March") == [TWO[1], "2004-03-05"]
    for comma in (1, 3):
        assert translated(ONE[0], TWO[0], [comma], [comma]) == [ONE[1], ONE[1]]
        assert translated(TWO[0], ONE[0], [comma], [comma]) == [TWO[1], TWO[1]]


def test_the_month_decides_which_month_is_preferred(dates: Server):
    found = dates.post("/v1/contrast", text=ONE[0], that="1987-06-12").json()
    assert (found["this"], found["that"]) == ("03", "06")
    assert found["difference"] > 0
    importance = dict(zip(found["source_tokens"], found["left_out"], strict=True))
    assert importance["March"] == max(found["left_out"])
    assert importance["March"] > 2 * abs(importance["1987"])


def test_a_patch_and_a_contrast_are_those_of_python(server: Server, trained: Path):
    run = load(trained)
    found = server.post("/v1/patch", text="cab", donor="fed", tokens=[0]).json()
    expected = run.patch("cab", donor="fed", tokens=[0])
    assert found["translation"] == expected.translation == "FAB"
    assert found["probability"] == pytest.approx(expected.probability, abs=1e-4)
    assert found["changed_probability"] == pytest.approx(expected.changed_probability, abs=1e-4)
    assert found["effect"] == pytest.approx(expected.effect, abs=1e-3)
    assert found["changed_probability"][0] < 0.5 < min(found["changed_probability"][1:])

    why = server.post("/v1/contrast", text="cab", that="CAD").json()
    reference = run.contrast("cab", "CAD")
    assert (why["prefix"], why["this"], why["that"]) == (["C", "A"], "B", "D")
    assert why["difference"] == pytest.approx(reference.difference, abs=1e-3)
    assert why["left_out"] == pytest.approx(reference.left_out, abs=1e-3)
    assert why["heads"][0][0] == reference.heads[0][0]._asdict()
    other = run.tokenizers.target.encode(["D"])[0][0]
    assert server.post("/v1/contrast", text="cab", position=2, token=other).json() == why


def test_a_point_of_the_decoder_has_positions_of_output_tokens(server: Server):
    found = server.post("/v1/patch", text="cab", donor="fed", name="decoder_norm", tokens="B", donor_tokens="D").json()
    assert found["translation"] == "CAD"


BAD = [
    ("/v1/patch", {"text": "cab"}, 400, "donor"),
    ("/v1/patch", {"text": "cab", "donor": " "}, 400, "empty"),
    ("/v1/patch", {"text": " ", "donor": "fed"}, 400, "empty"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "name": "encoder_nrm"}, 400, "encoder_norm"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "name": "x" * 300}, 400, "name"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "name": "encoder.0.self_attention.weights"}, 400, "no vector"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "name": "encoder.0.self_attention.query"}, 400, "no vector"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "tokens": [9]}, 400, "positions from 0 to 3"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "tokens": [-1]}, 400, "tokens"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "tokens": []}, 400, "tokens"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "tokens": [0, 0]}, 400, "twice"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "tokens": [0.5]}, 400, "tokens"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "tokens": list(range(2000))}, 400, "tokens"),
    (
        "/v1/patch",
        {"text": "cab", "donor": "fed", "tokens": [0, 1], "donor_tokens": [0]},
        400,
        "the same number of each",
    ),
    ("/v1/patch", {"text": "cab", "donor": "fed", "tokens": "x"}, 400, "exactly once"),
    ("/v1/patch", {"text": "cab", "donor": "ab", "tokens": [3]}, 400, "positions from 0 to 2"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "to": "ko"}, 400, "to"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "model": "other"}, 404, "model"),
    ("/v1/patch", {"text": "cab", "donor": "fed", "value": 1}, 400, "value"),
    ("/v1/patch", {"text": "cab", "donor": "a" * 20_000}, 413, "characters"),
    ("/v1/patch", {"text": "cab", "donor": "ab" * 100}, 400, "201 tokens"),
    ("/v1/patch", {"text": "cab", "donor": "\ud800"}, 400, "surrogate"),
    ("/v1/contrast", {"text": "cab"}, 400, "either 'that', or 'position' and 'token'"),
    ("/v1/contrast", {"text": "cab", "position": 0}, 400, "either 'that', or 'position' and 'token'"),
    ("/v1/contrast", {"text": "cab", "that": "CAD", "position": 0, "token": 5}, 400, "either 'that', or 'position'"),
    ("/v1/contrast", {"text": "cab", "that": "CAD", "token": 5}, 400, "either 'that', or 'position' and 'token'"),
    ("/v1/contrast", {"text": "cab", "that": " "}, 400, "empty"),
    ("/v1/contrast", {"text": "cab", "that": "CAB"}, 400, "nothing to contrast"),
    ("/v1/contrast", {"text": "cab", "that": "\udfff"}, 400, "surrogate"),
    ("/v1/contrast", {"text": "cab", "that": "A" * 200}, 400, "201 tokens"),
    ("/v1/contrast", {"text": "cab", "that": "A" * 20_000}, 413, "characters"),
    ("/v1/contrast", {"text": "cab", "position": 4, "token": 5}, 400, "position"),
    ("/v1/contrast", {"text": "cab", "position": 0, "token": 10_000}, 400, "token"),
    ("/v1/contrast", {"text": "cab", "position": 0, "token": 0}, 400, "token"),
    ("/v1/contrast", {"text": "cab", "position": -1, "token": 5}, 400, "position"),
]

TOO_LONG = {"code": "too_long", "tokens": 201, "most": 128}


@pytest.mark.parametrize(("path", "body", "status", "message"), BAD, ids=range(len(BAD)))
def test_bad_requests_are_refused_in_a_line(server: Server, path: str, body: dict[str, object], status: int, message):
    found = server.post(path, **body)
    answer = found.json()
    line = answer.pop("error")
    assert (found.status, answer) == (status, TOO_LONG if message == "201 tokens" else {}), found.body
    assert message in line
    assert "\n" not in line
    assert len(found.body) < 500


def test_the_routes_are_described(server: Server):
    document = json.loads(server.get("/openapi.json").body)
    assert set(TOO_LONG) < set(document["components"]["schemas"]["ErrorResponse"]["properties"])
    for path, fields in (("patch", {"own_translation", "changed_probability"}), ("contrast", {"left_out", "heads"})):
        described = document["paths"][f"/v1/{path}"]["post"]
        assert described["security"]
        name = described["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert fields < set(document["components"]["schemas"][name]["properties"])
