"""Alignment: chosen on validation pairs, kept with the run, and by words and characters."""

import errno
import json
import shutil

import numpy as np
import pytest

import stores
from conftest import random_words
from seq2see import special, storage
from seq2see.decoding import ct2_engine
from seq2see.lens import alignment, reading
from seq2see.lens.alignment import Alignment, Link, Method
from seq2see.run import load
from seq2see.text.pair import Pair
from seq2see.tokens import store

WORDS = ["badge", "face", "bed", "hag", "deaf"]


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return load(tmp_path / "run")


def aligned(run, lines, **options):
    return run.align(lines, run.search(lines, engine=run.engine("torch"), **options))


def test_letters_come_from_their_letters(run):
    links = [link for (each,) in aligned(run, WORDS) for link in each.links]
    assert len(links) == len("".join(WORDS))
    assert np.mean([link.source == link.target for link in links]) >= 0.8, "a tiny model, 150 steps old"


def test_training_has_chosen_and_kept_the_heads(run, monkeypatch):
    kept = run.manifest["alignment"]
    assert kept["pairs"] > 10
    assert kept["pairs"] <= kept["chosen_on"] <= kept["pairs"] + 1
    assert 0.5 < kept["agreement"] <= 1
    monkeypatch.setattr(alignment, "choose", None)  # not asked again
    assert load(run.folder).alignment_method == Method(**kept)


@pytest.mark.parametrize(
    "kept",
    [
        None,
        [],
        {},
        {"heads": [], "reading": 0.5},
        {"heads": [[7, 0]], "reading": 0.5},
        {"heads": 3, "reading": "x"},
        {"heads": [[0, 0], [0, 1]], "reading": 1, "guided": True},
        {"heads": [[0, 0]], "reading": 1, "guided": 1},
    ],
)
def test_an_older_or_damaged_manifest_is_completed(run, kept):
    path = run.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    expected = manifest["alignment"]
    path.write_text(json.dumps(manifest | {"alignment": kept}))
    assert load(run.folder).alignment_method.json() == expected
    assert json.loads(path.read_text())["alignment"] == expected


def guided_run(run):
    """Return a run that says of itself that its head was taught to align."""
    path = run.folder / "settings.toml"
    text = path.read_text().replace("alignment_weight = 0.0", "alignment_weight = 0.05")
    path.write_text(text)
    manifest = json.loads((run.folder / "manifest.json").read_text())
    del manifest["alignment"]
    (run.folder / "manifest.json").write_text(json.dumps(manifest))
    return load(run.folder)


def test_a_head_that_was_taught_is_used_in_the_row_that_reads_a_token(run, monkeypatch):
    run = guided_run(run)
    monkeypatch.setattr(alignment, "choose", None)  # not asked
    method = run.alignment_method
    layers = run.settings.model.decoder_layers
    assert method == Method([[max(0, layers - 2), 0]], 1.0, guided=True)
    assert "unknown" in method.in_words
    weights_LHTS = np.zeros((layers, run.settings.model.heads, 3, 3))
    weights_LHTS[method.heads[0][0], 0] = [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    links = alignment.of_weights(run.bundle, method, "ab", run.tokenizers.target.encode(["ba"])[0], weights_LHTS).links
    assert links == [Link((0, 1), (0, 1)), Link((1, 2), (1, 2))]


def test_a_head_that_was_taught_is_measured_by_the_links_of_an_aligner(run, tmp_path):
    run = guided_run(run)
    sides = run.tokenizers.source.encode(WORDS), run.tokenizers.target.encode(WORDS)
    folder = tmp_path / "store"
    written = stores.write(
        folder, zip(*sides, strict=True), max(map(len, (run.tokenizers.source, run.tokenizers.target)))
    )
    assert not alignment.measure_guided(run.bundle, written).pairs, "nothing is known without links"
    links = [place for ids in sides[1] for place in (*range(len(ids)), store.NO_LINK)]
    (folder / store.LINKS).write_bytes(np.array(links, "<u2").tobytes())
    method = alignment.measure_guided(run.bundle, store.Store(folder))
    assert (method.guided, method.pairs) == (True, len(WORDS))
    assert 0 < method.agreement <= 1
    run.keep_fact("alignment", method.json())
    assert load(run.folder).alignment_method == method
    assert "the aligner that taught it" in method.in_words


def test_a_folder_that_may_only_be_read(run, monkeypatch):
    del run.manifest["alignment"]
    before = (run.folder / "manifest.json").read_text()

    def refuse(path):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr("seq2see.storage.sync", refuse)  # root may write anywhere: a disk that refuses will do
    assert aligned(run, ["bad"])[0][0].pharaoh == "0-0"
    assert (run.folder / "manifest.json").read_text() == before
    assert not list(run.folder.glob(".*.part"))


def test_what_a_training_wrote_meanwhile_stays(run):
    """Two programs in one folder: choosing takes seconds, and must not bring back what was read before."""
    del run.manifest["alignment"]
    later = storage.read_manifest(run.folder) | {"steps": 999}
    del later["alignment"]
    storage.write_manifest(run.folder, later)
    chosen = run.alignment_method
    assert storage.read_manifest(run.folder) == later | {"alignment": chosen.json()}


def test_without_validation_pairs_all_heads_count(run):
    (run.folder / "validation.jsonl").unlink()
    del run.manifest["alignment"]
    assert run.alignment_method == Method([[0, 0], [0, 1]], 0.25)
    assert "alignment" not in run.manifest, "once there are pairs, they shall choose"


def test_pairs_of_blanks_choose_nothing(run):
    assert alignment.choose(run.bundle, [Pair(" ", "A", "")]) == alignment.standard(run.bundle)


def test_agreement_is_measured_on_other_pairs_than_those_that_chose(run, monkeypatch):
    """One head is right on every other pair, a second one on the rest: whichever is chosen is wrong elsewhere."""
    pairs = [Pair(word, word.upper(), "") for word in random_words(20, 5)]

    def attention(bundle, sources, targets, places):
        for index, (source, target) in enumerate(zip(sources, targets, strict=True)):
            weights_LHTS = np.zeros((1, 2, len(target), len(source)), np.float32)
            right = index % 2
            weights_LHTS[0, right, range(len(target)), [min(t, len(source) - 2) for t in range(len(target))]] = 1
            weights_LHTS[0, 1 - right, :, -1] = 1
            yield index, {"cross": weights_LHTS}

    def leave_out(bundle, reading):
        return np.eye(len(reading.target_ids), len(reading.source_ids))

    monkeypatch.setattr(alignment, "attention_of", attention)
    monkeypatch.setattr(alignment, "leave_out", leave_out)
    monkeypatch.setattr(
        alignment, "candidate_methods", lambda bundle: iter([Method([[0, 0]], 0.0), Method([[0, 1]], 0.0)])
    )
    chosen = alignment.choose(run.bundle, pairs)
    assert (chosen.pairs, chosen.chosen_on) == (10, 10)
    assert chosen.agreement < 0.5  # 1.0 on the pairs that chose it


def test_one_pair_chooses_and_nothing_is_measured(run):
    chosen = alignment.choose(run.bundle, [Pair("bad", "BAD", "")])
    assert (chosen.agreement, chosen.pairs, chosen.chosen_on) == (0.0, 0, 1)
    assert "its reliability is unknown" in chosen.in_words


def test_every_translation_and_empty_lines(run):
    found = aligned(run, ["bad", "", "  cab "], n_best=2)
    assert [len(each) for each in found] == [2, 1, 2]
    assert found[1] == [Alignment("", [])]
    assert [link.source for link in found[2][0].links] == [(2, 3), (3, 4), (4, 5)], "characters of the line as it is"


def test_one_alone_and_many_at_once(run):
    together = aligned(run, WORDS)
    assert together == [aligned(run, [word])[0] for word in WORDS]


def test_words_and_characters_by_hand(run):
    """Weights made by hand: three output letters, four input letters with a blank, and the end."""
    bundle = run.bundle
    target = bundle.tokenizers.target.encode(["ABC"])[0]
    weights = np.zeros((1, 1, 4, 5), np.float32)
    weights[0, 0, [0, 1, 2, 3], [3, 4, 1, 4]] = 1
    weights[0, 0, 1, 0] = 0.1  # the end has more, and does not count
    found = alignment.of_weights(bundle, Method([[0, 0]], 0.0), "ab c", target, weights)
    assert found.links == [Link((3, 4), (0, 1)), Link((0, 1), (1, 2)), Link((1, 2), (2, 3))]
    assert found.pharaoh == "0-0 1-0"
    later = alignment.of_weights(bundle, Method([[0, 0]], 20.0), "ab c", target, weights)
    assert [link.source for link in later.links] == [(0, 1), (1, 2), (1, 2)], "the row that reads it counts more"


def test_a_tag_is_taken_off():
    found = Alignment("1-0 2-1", [Link((6, 8), (0, 1)), Link((9, 10), (2, 3))])
    assert found.without_tag(0) is found
    assert found.without_tag(6) == Alignment("0-0 1-1", [Link((0, 2), (0, 1)), Link((3, 4), (2, 3))])


def test_a_source_that_was_cut(run):
    results = run.search(["badge"], engine=run.engine("torch"))
    source = (*results[0].source[:2], results[0].source[-1])
    found = alignment.align(run.bundle, run.alignment_method, ["badge"], [source], [results[0].translations[0].tokens])
    assert {link.source for link in found[0].links} <= {(0, 1), (1, 2)}


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Method([[1, 2]], 0.5, 0.71, 32, 32), "agrees with the effect of leaving out input tokens for 71%"),
        (Method([[1, 2]], 0.5, 0.71, 32, 32), "by head 3 of layer 2, which agrees"),
        (Method([[1, 0], [1, 2]], 0.5, 0.71, 32, 32), "by 2 heads of layer 2, which agree"),
        (Method([[0, 0], [1, 2]], 0.5, 0.3, 32, 31), "of 32 validation pairs (chosen on 31 others). Weak: most links"),
        (Method([[1, 2]], 0.5, 0.71, 64), "of 64 validation pairs (on which they were chosen, so this is too high)"),
        (
            Method([[0, 0], [1, 2]], 0.25),
            "by 2 heads of 2 layers; its reliability is unknown without short validation pairs",
        ),
    ],
)
def test_how_far_an_alignment_can_be_trusted(method, words):
    assert words in method.in_words
    assert method.is_weak == (method.agreement < 0.5)


def test_ctranslate2_returns_the_weights_of_the_head_that_was_taught(run):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra `fast` is not installed")
    run = guided_run(run)
    (layer, head), exported = run.alignment_method.heads[0], run.folder / "exported"
    exported.mkdir()
    ct2_engine.convert(run.folder, exported, "float32")
    translator = ctranslate2.Translator(str(exported), device="cpu", compute_type="float32")
    sources = [[*ids, special.END] for ids in run.tokenizers.source.encode(WORDS)]
    read, written = (side.spellings() for side in (run.tokenizers.source, run.tokenizers.target))
    spelled = [[read[token] for token in ids] for ids in sources]
    found = translator.translate_batch(spelled, beam_size=1, return_attention=True, return_end_token=True)
    targets = [[written.index(token) for token in each.hypotheses[0]] for each in found]
    for index, weights in reading.attention_of(run.bundle, sources, targets, ("cross",)):
        theirs_TS = np.array(found[index].attention[0])[:, : len(sources[index])]
        np.testing.assert_allclose(theirs_TS, weights["cross"][layer, head], atol=1e-4)
