"""The page holds everything that it shows, and nothing that it would have to fetch."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from seq2see import special
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.errors import DataError, TooLongError
from seq2see.lens.alignment import importance
from seq2see.lens.heads import Head
from seq2see.lens.reading import read
from seq2see.look import page
from seq2see.pictures import textbook
from seq2see.run import load


@pytest.fixture(scope="module")
def run(trained):
    return load(trained)


@pytest.fixture(scope="module")
def seen(run):
    return run.look("cab")


@pytest.fixture(scope="module")
def inside(run):
    return page.queries_and_keys(run.bundle, read(run.bundle, "cab"))


def test_parts_have_all_that_was_seen(run, seen):
    given = page.gather(run, "cab")
    assert given["summary"]["translation"] == seen.translation == run.translate(["cab"])[0]
    assert given["summary"]["source_tokens"] == seen.source_tokens
    assert not given["summary"]["forced"]
    for place in ("encoder", "decoder", "cross"):
        assert given["summary"]["layers"][place] == len(getattr(seen, place)) == 1
        assert given[f"attention/{place}/0"] == page.rounded(getattr(seen, place)[0], 4)
    groups = given["summary"]["vectors"]
    names = [each["name"] for group in (*groups["embedding"], *groups["layers"]) for each in group["choices"]]
    assert len(names) == 2 * 3 + 2
    assert all(f"vectors/{name}" in given for name in names)
    waves = textbook.waves(len(seen.source_tokens), run.settings.model.d_model)
    assert np.abs(np.array(given["vectors/source_embedding.positions"]) - waves).max() < 0.001
    assert given["importance"]["left_out"] == page.rounded(run.importance("cab").left_out, 3)
    assert {link["target"] for link in given["alignment"]} <= set(range(len(seen.target_tokens) - 1))
    assert given["beam"]["nodes"][0]["token"] == "<s>"


def parts_in(text):
    found = re.findall(r'<script type="application/json" id="part:([^"]+)">(.*?)</script>', text, re.DOTALL)
    return {name: json.loads(value) for name, value in found}


def test_the_page_holds_the_parts_and_needs_no_network(run):
    given = page.gather(run, "cab")
    text = page.render(given)
    assert parts_in(text) == json.loads(json.dumps(given))
    assert not re.search(r"""(?:src|href|url\()\s*=?\s*["']?(?:https?:)?//""", text)
    assert "@import" not in text
    assert "default-src 'none'" in text
    for left in ("/* style */", "/* script */", "<!-- parts -->"):
        assert left not in text


def test_a_sentence_cannot_break_out_of_its_place(run, seen):
    nasty = "</script><script>alert(1)</script><!-- parts -->/* script */"
    given = page.parts(run, replace(seen, source=nasty))
    text = page.render(given)
    assert "alert(1)</script>" not in text
    assert parts_in(text)["summary"]["source"] == nasty


def test_a_given_translation_is_marked(run):
    given = page.parts(run, run.look("cab", target="BAC"), "CAB")
    summary = given["summary"]
    assert (summary["translation"], summary["forced"], summary["own_translation"]) == ("BAC", True, "CAB")


def test_a_sentence_is_searched_once(run, monkeypatch):
    """A large model takes a second for it; all parts are about the same reading."""
    searched = []
    search = TorchEngine.search
    monkeypatch.setattr(TorchEngine, "search", lambda *given: searched.append(given) or search(*given))
    given = page.gather(run, "cab", target="BAC")
    assert len(searched) == 1
    assert given["summary"]["own_translation"] == "CAB"
    assert page.gather(run, "cab")["summary"]["own_translation"] is None


def test_too_long_is_said_of_the_side_that_is(run, monkeypatch):
    with pytest.raises(DataError, match=r"the sentence has 137 tokens: at most 128 can be shown\. Shorten it$"):
        page.gather(run, "abcdefgh" * 17)
    with pytest.raises(DataError, match=r"the given translation has 1\d\d tokens: .* Shorten it$"):
        page.gather(run, "cab", target="ABCDEFGH" * 17)
    with monkeypatch.context() as patched:
        patched.setattr(TorchEngine, "search", None)  # what is too long is refused before it is searched
        with pytest.raises(DataError, match="the sentence has 137 tokens"):
            page.gather(run, "abcdefgh" * 17)
        with pytest.raises(DataError, match="the given translation has"):
            page.gather(run, "cab", target="ABCDEFGH" * 17)
    monkeypatch.setattr(page, "read", lambda *given: replace(read(*given), target_ids=[5] * 151))
    with pytest.raises(TooLongError, match=r"the translation has 151 tokens: .* Shorten the sentence$") as refused:
        page.gather(run, "cab")
    assert refused.value.details == {"code": "too_long", "tokens": 151, "most": page.LONGEST}


def test_queries_and_keys_give_the_weights(run, seen, inside):
    """softmax(q k / sqrt(d)) of what the page holds is the weight that it shows."""
    for place, weights in (("encoder", seen.encoder[0]), ("cross", seen.cross[0])):
        query, key = np.array(inside[f"{place}/0"]["query"]), np.array(inside[f"{place}/0"]["key"])
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
        shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        assert np.abs(shares - weights).max() < 0.01


def test_what_was_said_has_one_label_everywhere(run, seen):
    """In a sentence a byte is labelled by its character, alone by its number: the page must know it as the same."""
    said = ["é 1/2", *seen.target_tokens[1:]]
    given = page.parts(run, replace(seen, target_tokens=said))
    place = seen.layers.rank[-1][0] - 1
    assert given["candidates"]["candidates"][0][place]["token"] == "é 1/2"
    assert given["layers"]["candidates"][-1][0][place]["token"] == "é 1/2"


def test_what_takes_long_is_computed_when_it_is_asked_for(run, monkeypatch):
    whole = page.gather(run, "cab")
    asked = []
    monkeypatch.setattr(page, "importance", lambda *given: asked.append("importance") or importance(*given))
    inside = page.Inside(run, "cab")
    assert set(inside.names) == set(whole)
    assert inside.part("summary") == whole["summary"]
    assert asked == []
    for _ in range(2):
        assert inside.part("importance") == whole["importance"]
    assert asked == ["importance"]
    assert inside.part("inside/cross/0") == whole["inside/cross/0"]
    with pytest.raises(DataError, match=r"no part 'importanc'\. Did you mean 'importance'"):
        inside.part("importanc")


def test_without_heads(run):
    whole = page.Inside(run, "cab")
    heads = [Head("cross", 0, 0), Head("cross", 0, 1)]
    blind = page.Inside(run, "cab", without=heads)
    for name in ("candidates", "importance"):
        assert blind.part(name) != whole.part(name)
    assert not any(map(any, blind.part("importance")["left_out"]))  # nothing reaches the decoder from the source
    assert page.Inside(run, "cab").part("candidates") == whole.part("candidates")


def test_heads_stay_off_while_activations_are_changed_and_outputs_contrasted(run):
    heads = [Head("cross", 0, 0), Head("cross", 0, 1)]
    blind, donor = (page.Inside(run, text, without=heads) for text in ("cab", "fed"))
    effects = [blind.patch(donor, "encoder_norm")["effect"], *blind.contrast("FED")["left_out"]]
    assert effects == pytest.approx([0.0] * len(effects), abs=1e-4)  # nothing reaches the decoder from the source


def test_a_translation_begins_as_it_is_told(run):
    own = page.Inside(run, "cab")
    first = own.part("candidates")["candidates"][0]
    other = next(each for each in first if each["token"] != "C" and not each["token"].startswith("<"))
    forced = page.Inside(run, "cab", prefix=[other["id"]])
    assert forced.part("summary")["translation"].startswith(other["token"])
    assert forced.part("summary")["target_ids"][0] == other["id"]
    assert page.Inside(run, "cab", prefix=own.part("summary")["target_ids"]).part("summary")["translation"] == "CAB"


@pytest.mark.parametrize("wrong", [-1, special.PAD, special.BEGIN, special.END, 10**6])
def test_a_beginning_of_what_cannot_be_said_is_refused(run, wrong):
    with pytest.raises(DataError, match="prefix"):
        page.Inside(run, "cab", prefix=[wrong])


def test_letters_have_their_places(run):
    found = page.Inside(run, "cab").part("summary")
    assert [found["source"][start:end] for start, end in found["source_spans"]] == ["c", "a", "b", ""]
    assert [found["translation"][start:end] for start, end in found["target_spans"]] == ["C", "A", "B", ""]
