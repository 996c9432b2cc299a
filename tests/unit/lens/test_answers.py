"""What is said about one translation is true of the model, and is plain JSON."""

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from seq2see import special
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.decoding.translator import translate
from seq2see.errors import DataError, SettingError
from seq2see.lens import heads
from seq2see.lens.alignment import gradient_times_input, importance, leave_out
from seq2see.lens.answers import look
from seq2see.lens.heads import Head
from seq2see.lens.reading import read, target_logs
from seq2see.run import load
from seq2see.text.pair import Pair


@pytest.fixture(scope="module")
def run(trained):
    """Writes small letters large: one layer each, two heads."""
    return load(trained)


@pytest.fixture(scope="module")
def seen(run):
    return run.look("badge")


def test_it_explains_what_translate_says(run, seen):
    (result,) = run.search(["badge"], engine=run.engine("torch"))
    assert seen.translation == result.text == "BADGE"
    assert math.prod(seen.confidence.probability) == pytest.approx(result.translations[0].probability, rel=1e-4)
    assert seen.beam.nodes[seen.beam.best].score == pytest.approx(result.translations[0].score, abs=1e-5)


def test_the_likeliest_candidates_come_first(seen):
    for place, candidates in enumerate(seen.confidence.candidates):
        shares = [each.probability for each in candidates]
        assert shares == sorted(shares, reverse=True)
        assert 0 < sum(shares) <= 1.0001
        assert candidates[0].token == seen.target_tokens[place]
        assert not {"<pad>", "<s>"} & {each.token for each in candidates}


def test_the_last_layer_says_what_the_model_says(seen):
    np.testing.assert_allclose(seen.layers.probability[-1], seen.confidence.probability, rtol=1e-5)
    assert (seen.layers.rank[-1] == 1).all()
    said = [[each.token for each in place] for place in seen.layers.candidates[-1]]
    assert said == [[each.token for each in place] for place in seen.confidence.candidates]


def test_earlier_layers_are_read_through_the_same_output(run):
    """By hand: the stream after the first layer of a deeper model."""
    bundle = load(run.folder).bundle
    bundle.model.decoder.append(copy.deepcopy(bundle.model.decoder[0]))
    found = look(bundle, read(bundle, "bad"))
    model = bundle.model
    with torch.no_grad():
        memory = model.encode(torch.tensor(bundle.tokenizers.source.encode(["bad"])[0] + [3]), torch.tensor([0, 4]))
        ids = bundle.tokenizers.target.encode([found.translation])[0]
        del model.decoder[1]
        first = model.decode(torch.tensor([special.BEGIN, *ids]), torch.tensor([0, len(ids) + 1]), memory)
        logits = model.output(first)
        logits[:, [special.PAD, special.BEGIN]] = -math.inf
    expected = logits.softmax(-1)[range(len(ids) + 1), [*ids, special.END]]
    np.testing.assert_allclose(found.layers.probability[0], expected, rtol=1e-4)


def test_a_translation_can_be_forced(run):
    forced = run.look("bad", target="DAB")
    assert forced.translation == "DAB"
    assert forced.target_tokens == ["D", "A", "B", "</s>"]
    assert forced.confidence.probability[0] < 0.5
    assert forced.confidence.candidates[0][0].token == "B", "what it would have said"
    assert "".join(node.token for node in forced.beam.path(forced.beam.best)) == "BAD</s>"


def test_letters_that_the_target_does_not_know_are_marked(run):
    forced = run.look("bad", target="B漢D")
    assert forced.translation == "B⁇D"
    assert [forced.translation[start:end] for start, end in forced.target_spans] == ["B", "⁇", "D", ""]
    assert forced.notes == [
        "the given translation has characters without a token in the model: 漢. The model can only guess there"
    ]
    assert (forced.own_translation, run.look("bad").notes) == ("BAD", [])


def test_letters_that_the_source_does_not_know_are_told_of(run):
    strange = "".join(map(chr, range(0x4E00, 0x4E0C)))
    (note,) = run.look(f"ba{strange}d").notes
    assert note.endswith(
        f" without a token in the model: {' '.join(strange[:10])} and 2 more. The model can only guess there"
    )
    (note,) = run.look("ba\x07d").notes
    assert ": U+0007. " in note


def test_what_is_cut_is_told_of(run):
    short = load(run.folder)
    settings = replace(run.settings, decoding=replace(run.settings.decoding, max_source=4))
    cut = look(replace(short.bundle, settings=settings), read(replace(short.bundle, settings=settings), "badge"))
    assert cut.source_tokens == [*"bad", "</s>"]
    assert cut.notes == ["the sentence is too long: only its first 3 tokens were read"]


@pytest.mark.parametrize("target", ["", " \n"])
def test_an_empty_translation_cannot_be_looked_at(run, target):
    for ask in (run.look, run.importance):
        with pytest.raises(SettingError, match=r"translation .* is empty"):
            ask("cab", target=target)


@pytest.mark.parametrize("given", [{"sentence": None}, {"sentence": ["cab"]}, {"sentence": "cab", "target": ["CAB"]}])
def test_only_text_can_be_looked_at(run, given):
    with pytest.raises(TypeError, match="look expects one sentence, a str, not"):
        run.look(**given)


@pytest.mark.parametrize("sentence", ["", " \n"])
def test_nothing_cannot_be_looked_at(run, sentence):
    for ask in (run.look, run.importance):
        with pytest.raises(SettingError, match="empty"):
            ask(sentence)


def test_tokens_know_their_characters(seen):
    assert [seen.source[start:end] for start, end in seen.source_spans] == [*"badge", ""]
    assert [seen.translation[start:end] for start, end in seen.target_spans] == [*"BADGE", ""]


def test_vectors_are_named_and_sized(seen):
    S, T = len(seen.source_tokens), len(seen.target_tokens)
    assert {name: vectors.shape for name, vectors in seen.vectors.items()} == {
        "source_embedding.without_positions": (S, 32),
        "source_embedding.with_positions": (S, 32),
        "target_embedding.without_positions": (T, 32),
        "target_embedding.with_positions": (T, 32),
        "encoder.0": (S, 32),
        "decoder.0": (T, 32),
    }


def test_all_of_it_is_json(run, seen):
    pairs = [Pair("bad", "BAD", ""), Pair("cab", "CAB", "")]
    for answer in (seen, seen.beam, run.importance("bad"), run.head_worth(pairs), run.head_statistics(pairs)):
        text = json.dumps(answer.json(), allow_nan=False)
        assert json.loads(text) == answer.json()
        assert "-0.0," not in text
    found = seen.json()
    assert found["cross"][0][1][2][3] == pytest.approx(seen.cross[0][1, 2, 3], abs=1e-5)
    assert found["beam"]["nodes"][1].keys() == {
        "parent",
        "step",
        "row",
        "token",
        "log_probability",
        "score",
        "state",
    }
    assert found["confidence"]["candidates"][0][0].keys() == {"token", "probability", "id"}
    assert found["alignment"]["links"][0] == {"source": [0, 1], "target": [0, 1]}


# The beam


def test_the_tree_is_a_tree(seen):
    nodes = seen.beam.nodes
    assert nodes[0].state == "root"
    for place, node in enumerate(nodes[1:], start=1):
        assert 0 <= node.parent < place
        assert node.step == nodes[node.parent].step + 1
        assert node.log_probability <= nodes[node.parent].log_probability
        assert nodes[node.parent].state in ("root", "kept"), "nothing grows on what was given up"
        assert (node.row >= 0) == (node.state == "kept")
    assert {node.state for node in nodes} == {"root", "kept", "finished", "pruned"}
    for step in range(max(node.step for node in nodes)):
        rows = [node.row for node in nodes if node.step == step and node.row >= 0]
        assert sorted(rows) == list(range(len(rows)))
    last = max(node.step for node in nodes)
    assert not [node for node in nodes if node.step == last and node.state == "kept"], "nothing went on from the last"


def test_greedy_is_a_tree_with_one_branch(trained):
    bundle = load(trained).bundle
    greedy = replace(bundle, settings=replace(bundle.settings, decoding=replace(bundle.settings.decoding, beam=1)))
    grown = look(greedy, read(greedy, "bad")).beam
    assert [node.token for node in grown.nodes] == ["<s>", "B", "A", "D", "</s>"]
    assert [node.state for node in grown.nodes] == ["root", "kept", "kept", "kept", "finished"]
    assert grown.best == 4


@pytest.mark.parametrize("stop_against", ["worst", "best"])
def test_the_tree_grows_as_long_as_the_search_of_the_run(trained, stop_against):
    """Its best finished leaves are the n-best list that `translate` gives with the same settings."""
    bundle = load(trained).bundle
    decoding = replace(bundle.settings.decoding, beam=4, stop_against=stop_against)
    bundle = replace(bundle, settings=replace(bundle.settings, decoding=decoding))
    for sentence in ("badge", "cab", "h"):
        grown = look(bundle, read(bundle, sentence)).beam
        (result,) = translate(TorchEngine(bundle.model), bundle.tokenizers, bundle.settings, [sentence], n_best=4)
        leaves = sorted((node.score for node in grown.nodes if node.state == "finished"), reverse=True)
        assert leaves[:4] == pytest.approx([each.score for each in result.translations], abs=1e-5)
        last = max(node.step for node in grown.nodes)
        best_open = max(node.score for node in grown.nodes if node.step == last and node.state != "finished")
        assert best_open <= leaves[3 if stop_against == "worst" else 0]


# Importance


def test_leaving_out_is_what_it_says(run):
    reading = read(run.bundle, "badge")
    found = leave_out(run.bundle, reading)
    assert found.shape == (6, 6)
    with torch.no_grad():
        whole = target_logs(run.bundle, [reading.source_ids], [reading.target_ids])
        without = target_logs(run.bundle, [[*reading.source_ids[:2], *reading.source_ids[3:]]], [reading.target_ids])
    np.testing.assert_allclose(found[:, 2], whole - without, atol=1e-4)
    assert not found[:, -1].any(), "the end stays"
    assert found[2].argmax() == 2, "D owes most to d"


def test_gradient_times_input_is_the_slope_along_the_embedding(run):
    reading = read(run.bundle, "badge")
    found = gradient_times_input(run.bundle, reading)
    assert found.shape == (6, 6)
    point = run.bundle.model.source_embedding.without_positions

    def at(factor, place):
        def scale(_, __, x_ND):
            scaled = x_ND.clone()
            scaled[place] *= factor
            return scaled

        handle = point.register_forward_hook(scale)
        with torch.no_grad():
            logs = target_logs(run.bundle, [reading.source_ids], [reading.target_ids])
        handle.remove()
        return logs.numpy()

    for place in (0, 3):
        slope = (at(1.01, place) - at(0.99, place)) / 0.02
        np.testing.assert_allclose(found[:, place], slope, atol=0.02, rtol=0.05)
    assert not point._forward_hooks


def test_integrated_gradients_share_out_the_log_probability(run):
    """A row sums to the log-probability minus that of embeddings of zeros (completeness)."""
    reading = read(run.bundle, "badge")
    ids = [reading.source_ids], [reading.target_ids]
    with torch.no_grad():
        whole = target_logs(run.bundle, *ids)
        handle = run.model.source_embedding.without_positions.register_forward_hook(lambda *_: torch.zeros(6, 32))
        nothing = target_logs(run.bundle, *ids)
        handle.remove()
    found = run.importance("badge", steps=60)
    np.testing.assert_allclose(found.integrated.sum(-1), whole - nothing, atol=0.1)
    assert found.integrated.sum() > 1
    assert run.importance("badge").integrated is None
    with pytest.raises(SettingError, match="steps=-1"):
        run.importance("badge", steps=-1)


def test_gradients_are_integrated_in_parts(run, monkeypatch):
    whole = run.importance("badge", steps=7).integrated
    monkeypatch.setattr("seq2see.lens.alignment.AT_ONCE", 25)
    told = []
    parts = importance(run.bundle, read(run.bundle, "badge"), lambda *words: told.append(words), steps=7).integrated
    np.testing.assert_allclose(parts, whole, atol=1e-4)
    assert told[-1] == ("computing gradients of output tokens", 24, 24), "of four parts"


def test_long_sentences_are_read_in_parts(run, monkeypatch):
    reading = read(run.bundle, "badge")
    whole = leave_out(run.bundle, reading)
    monkeypatch.setattr("seq2see.lens.alignment.AT_ONCE", 25)
    told = []
    parts = leave_out(run.bundle, reading, lambda *words: told.append(words))
    np.testing.assert_allclose(parts, whole, atol=1e-4)
    assert told == [("leaving out input tokens", done, 5) for done in (2, 4, 5)]


def test_who_waits_is_told(run):
    told = []
    importance(run.bundle, read(run.bundle, "badge"), lambda *words: told.append(words))
    assert [words for words in told if words[0].startswith("computing gradients")] == [
        ("computing gradients of output tokens", done, 6) for done in range(1, 7)
    ]
    assert told[-1] == ("leaving out input tokens", 5, 5)


# Heads

PAIRS = [Pair(word, word.upper(), "") for word in ("bad", "cab", "badge", "h", "face")]


def test_a_head_that_is_switched_off_says_nothing(run):
    model = run.bundle.model
    x, memory = torch.randn(2, 3, 32), torch.randn(2, 5, 32)
    attention = model.decoder[0].cross_attention
    with torch.no_grad():
        both = attention(x, memory)
        with heads.switched_off(model, [Head("cross", 0, 0)]):
            second = attention(x, memory)
        with heads.switched_off(model, [Head("cross", 0, 1)]):
            first = attention(x, memory)
        with heads.switched_off(model, [Head("cross", 0, 0), Head("cross", 0, 1)]):
            neither = attention(x, memory)
        torch.testing.assert_close(neither, attention.w_o.bias.expand(2, 3, 32))
        torch.testing.assert_close(first + second - neither, both)
        assert torch.equal(attention(x, memory), both), "and it speaks again"


@pytest.mark.parametrize("head", [Head("cross", 1, 0), Head("encoder", 0, 2), Head("decoder", -1, 0)])
def test_a_head_that_is_not_there(run, head):
    with pytest.raises(SettingError, match=r"no (head|layer)"), heads.switched_off(run.bundle.model, [head]):
        pass


def test_a_head_of_no_attention_is_refused_before_anything_is_translated(run, monkeypatch):
    monkeypatch.setattr(heads, "translate", None)
    with pytest.raises(SettingError, match=r"no attention 'crss'\. Did you mean 'cross'\?"):
        run.head_worth(PAIRS, groups=[[Head("cross", 0, 0)], [Head("crss", 0, 0)]])


def test_worth_by_one_and_together(run):
    found = run.head_worth(PAIRS, metric="exact")
    assert found.whole.translations == [pair.target for pair in PAIRS]
    assert found.whole.score == 100
    assert [each.heads for each in found.without] == [[head] for head in heads.every_head(run.bundle)]
    assert len(found.without) == 6
    every = run.head_worth(PAIRS, [[], [Head("cross", 0, 0), Head("cross", 0, 1)]], metric="exact")
    nothing, blind = every.without
    assert nothing.loss == pytest.approx(found.whole.loss)
    assert nothing.changed == 0
    assert blind.changed == 1, "without any cross attention the source is unknown"
    assert blind.score == 0
    assert blind.loss > found.whole.loss + 1
    assert run.look("bad").translation == "BAD", "the run itself is whole"


def test_scores_are_those_that_chose_the_model(run):
    assert run.settings.training.metric == run.metric == "exact"
    assert run.head_worth(PAIRS, [[]]) == run.head_worth(PAIRS, [[]], metric="exact")
    other = load(run.folder)
    other.settings = replace(run.settings, training=replace(run.settings.training, metric="loss"))
    assert other.metric == "bleu"


def test_heads_of_a_run_with_tags_see_the_tag(run):
    """A source asks for the language of its pair; one that has its tag already keeps it."""
    tagged = load(run.folder)
    tagged.settings = replace(run.settings, data=replace(run.settings.data, tags="de fr"))
    pairs = [Pair("bad", "BAD", "", language="fr"), Pair("<2de> cab", "CAB", "", language="fr")]
    assert [pair.source for pair in tagged._pairs(pairs)] == ["<2fr> bad", "<2de> cab"]
    assert [pair.source for pair in tagged._pairs(pairs, "de")] == ["<2de> bad", "<2de> cab"]
    assert run._pairs(pairs) == pairs
    with pytest.raises(SettingError, match="choose a language with --to"):
        tagged.head_statistics([Pair("bad", "BAD", "")])


def test_loss_is_that_of_the_model(run):
    reading = read(run.bundle, "bad")
    found = heads.worth(run.bundle, [Pair("bad", "BAD", "")], [])
    with torch.no_grad():
        logs = target_logs(run.bundle, [reading.source_ids], [reading.target_ids])
    assert found.whole.loss == pytest.approx(-float(logs.mean()), rel=1e-4)
    assert found.whole.score is None


def test_habits_of_known_weights():
    even = np.full((1, 1, 3, 4), 0.25)
    entropy, spread, peak, *_, end = heads.habits_of(even, "cross")[:, 0, 0].mean(-1)
    assert (entropy, spread, peak, end) == pytest.approx((math.log(4), 1, 0.25, 0.25))
    before = np.eye(4)[[0, 0, 1, 2]][None, None]
    habits = dict(zip(heads.Habits._fields[3:], heads.habits_of(before, "decoder")[:, 0, 0].mean(-1), strict=True))
    assert habits["entropy"] == habits["spread"] == 0
    assert (habits["distance"], habits["offset"]) == (0.75, -0.75)
    assert (habits["previous"], habits["same"], habits["following"], habits["end"]) == (0.75, 0.25, 0, 0.5)
    diagonal = np.eye(5)[[0, 2, 4]][None, None]
    assert heads.habits_of(diagonal, "cross")[3, 0, 0].sum() == 0, "far apart, and yet on the diagonal"


def test_statistics_do_not_depend_on_batches(run, monkeypatch):
    together = run.head_statistics(PAIRS)
    assert [(each.place, each.layer, each.head) for each in together.heads] == heads.every_head(run.bundle)
    monkeypatch.setattr("seq2see.lens.reading.AT_ONCE", 1)
    alone = run.head_statistics(PAIRS)
    np.testing.assert_allclose([each[3:] for each in alone.heads], [each[3:] for each in together.heads], atol=1e-5)


def test_pairs_are_given_as_to_evaluate(run, tmp_path):
    (tmp_path / "words.tsv").write_text("bad\tBAD\ncab\tCAB\n", encoding="utf-8")
    expected = run.head_statistics([Pair("bad", "BAD", ""), Pair("cab", "CAB", "")])
    for given in (str(tmp_path / "words.tsv"), tmp_path / "words.tsv", [("bad", "BAD"), ["cab", "CAB", "cab"]]):
        assert run.head_statistics(given) == expected
        assert run.head_worth(given, [[]]).whole.translations == ["BAD", "CAB"]
    assert run.evaluate([("bad", "X", "BAD")]).scores["exact"].value == 100, "further references"


@pytest.mark.parametrize("wrong", ["bad", ("bad",), ("bad", 3), 7, {"source": "bad", "target": "BAD"}])
def test_what_is_no_pair_is_told_by_its_place(run, wrong):
    with pytest.raises(DataError, match=r"^pair 2: .* is not a pair\. Give \(source, target\), or the name of a file"):
        run.head_statistics([("bad", "BAD"), wrong])


def test_no_pairs_no_answer(run):
    for ask in (run.head_worth, run.head_statistics):
        with pytest.raises(DataError, match="no pair"):
            ask([])
