"""The page of two runs holds the parts of both, and needs no network."""

import json
import re

import pytest

from seq2see.errors import SettingError
from seq2see.look import beside
from seq2see.run import load


@pytest.fixture(scope="module")
def run(trained):
    return load(trained)


def test_the_page_holds_the_parts_of_both_runs(run):
    given = beside.gather(run, run, "cab")
    assert given["comparison"]["translations"] == ("CAB", "CAB")
    assert given["comparison"]["common"] == "CAB"
    assert given["comparison"]["rest"] == ["", ""]
    assert given["A/summary"] == given["B/summary"]
    assert {"A/attention/cross/0", "A/inside/cross/0", "A/candidates", "A/importance"} <= set(given)
    assert not [name for name in given if "vectors" in name or "attention/encoder" in name]
    text = beside.render(given)
    found = re.findall(r'<script type="application/json" id="part:([^"]+)">(.*?)</script>', text, re.DOTALL)
    assert {name: json.loads(value) for name, value in found} == json.loads(json.dumps(given))
    assert not re.search(r"""(?:src|href|url\()\s*=?\s*["']?(?:https?:)?//""", text)
    assert "default-src 'none'" in text


def test_a_notebook_shows_the_page(run, monkeypatch):
    assert run.compare_looks(run, "cab")._repr_html_() is None
    monkeypatch.setattr("seq2see.display.notebook.is_notebook", lambda: True)
    shown = run.compare_looks(run, "cab")._repr_html_()
    assert shown.startswith("<iframe")
    assert "part:comparison" in shown


def test_a_language_is_only_asked_of_runs_that_have_some(run, monkeypatch):
    with pytest.raises(SettingError, match="--to de"):
        beside.gather(run, run, "cab", to="de")


def test_names_are_told_apart(run, tmp_path):
    assert beside.gather(run, run, "cab")["comparison"]["runs"] == (str(run.folder), str(run.folder))
