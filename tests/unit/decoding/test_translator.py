"""Strings in, strings out: one result for each line, whatever the line."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import seq2see
from seq2see import config, special
from seq2see.bundle import Bundle
from seq2see.config import Decoding
from seq2see.decoding import search, translator
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.errors import SettingError
from seq2see.model.build import build
from seq2see.tokens import tokenizers
from seq2see.tokens.store import Tokenizers


@pytest.fixture(scope="module")
def bundle(trained: Path) -> Bundle:
    return seq2see.load(trained).bundle


def translate(
    bundle: Bundle,
    lines: list[str],
    decoding: Decoding | None = None,
    *,
    choose: search.Choose | None = None,
    **options: Any,
) -> list[translator.Result]:
    """By our own engine, with other settings of decoding than the run's where they are given."""
    settings = replace(bundle.settings, decoding=decoding or bundle.settings.decoding)
    return translator.translate(TorchEngine(bundle.model, choose), bundle.tokenizers, settings, lines, **options)


def texts(results: list[translator.Result]) -> list[str]:
    return [result.text for result in results]


def endless(**model: object) -> Bundle:
    """A model that says "a" for ever: its output bias decides, whatever it reads."""
    settings = config.resolve(
        {
            "data": {"shared": False, "source_tokenizer": "characters", "target_tokenizer": "characters"},
            "model": {
                "encoder_layers": 1,
                "decoder_layers": 1,
                "d_model": 8,
                "heads": 2,
                "d_ff": 12,
                "tie": "none",
                "output_bias": True,
                **model,
            },
        }
        | ({"data": {"max_length": 5, "shared": False}} if model.get("positions") == "learned" else {})
    )
    letters = tokenizers.train("characters", ["abc"], 20)
    network = build(settings.model, len(letters), len(letters)).eval()
    with torch.no_grad():
        network.output.weight.zero_()
        network.output.bias.zero_()
        network.output.bias[letters.encode(["a"])[0][0]] = 50.0
        network.output.bias[special.END] = -50.0
    return Bundle(settings, Tokenizers(letters, letters), network)


def test_it_translates(bundle: Bundle) -> None:
    found = texts(translate(bundle, ["ab", "h", "cafe"]))
    assert found[:2] == ["AB", "H"]
    assert set(found[2]) <= set("ABCDEFGH")


def test_empty_and_blank_lines_stay_empty(bundle: Bundle) -> None:
    results = translate(bundle, ["", "ab", "   ", "\t", "\u3000", "ab", ""])
    assert texts(results) == ["", "AB", "", "", "", "AB", ""]
    assert [each.score for each in results[0].translations] == [0.0]
    assert not any(result.cut for result in results)


def test_nothing_gives_nothing(bundle: Bundle) -> None:
    assert translate(bundle, []) == []
    assert texts(translate(bundle, ["", " "])) == ["", ""]


def test_the_order_is_kept(bundle: Bundle) -> None:
    dice = random.Random(2)
    lines = ["".join(dice.choices("abcdefgh", k=dice.randint(1, 6))) if dice.random() < 0.9 else "" for _ in range(60)]
    small = replace(bundle.settings.decoding, batch_tokens=40)
    together = texts(translate(bundle, lines, small))
    assert together == [texts(translate(bundle, [line]))[0] for line in lines]
    assert together[::-1] == texts(translate(bundle, lines[::-1], small))


def test_a_batch_smaller_than_one_line_still_translates(bundle: Bundle) -> None:
    assert texts(translate(bundle, ["ab", "h"], Decoding(batch_tokens=1))) == ["AB", "H"]


def test_a_very_long_line_is_cut_and_flagged(bundle: Bundle) -> None:
    decoding = Decoding(max_source=7, beam=1)
    long, short = translate(bundle, ["abcdefgh" * 500, "abcdef"], decoding)
    assert (long.cut, short.cut) == (True, False)
    assert long.text == translate(bundle, ["abcdef"], decoding)[0].text
    assert not translate(bundle, ["abcdef"], decoding)[0].cut
    assert translate(bundle, ["abcdefg"], decoding)[0].cut  # seven letters and the end are eight


def test_max_source_of_one_reads_only_the_end(bundle: Bundle) -> None:
    (result,) = translate(bundle, ["abc"], Decoding(max_source=1))
    assert result.cut


@pytest.mark.parametrize(
    "line", ["xyz", "안녕 세상", "a\u2028b", "a\rb", "a\0b", "\ud800", "😀" * 30, "a\nb", "\ufeff"]
)
def test_unknown_characters_give_one_result(bundle: Bundle, line: str) -> None:
    (result,) = translate(bundle, [line])
    assert isinstance(result.text, str)
    assert not result.cut
    assert texts(translate(bundle, ["ab", line, "h"])) == ["AB", result.text, "H"]


def test_n_best(bundle: Bundle) -> None:
    for n_best in (1, 2, 4, 7):  # 7 is more than the beam: it widens
        results = translate(bundle, ["abc", "", "h"], Decoding(beam=4), n_best=n_best)
        for index in (0, 2):
            translations = results[index].translations
            assert len(translations) == n_best
            assert len({each.tokens for each in translations}) == n_best
            assert [each.score for each in translations] == sorted((each.score for each in translations), reverse=True)
            for each in translations:
                assert bundle.tokenizers.target.decode(each.tokens) == each.text
        assert [each.text for each in results[1].translations] == [""]
    assert translate(bundle, ["h"], Decoding(beam=4), n_best=3)[0].text == "H"


def test_a_beam_of_one_is_greedy(bundle: Bundle) -> None:
    lines = ["abc", "h", "gfedcb"]
    one = translate(bundle, lines, Decoding(beam=1))
    greedy = translate(bundle, lines, Decoding(beam=3), choose=search.greedy)
    assert [result.translations[0].tokens for result in one] == [result.translations[0].tokens for result in greedy]


def test_samples_follow_their_seed(bundle: Bundle) -> None:
    lines = ["abcdef"] * 20

    def draw(seed: int) -> list[str]:
        return texts(translate(bundle, lines, choose=search.sampling(temperature=2.0, seed=seed)))

    assert draw(1) == draw(1) != draw(2)
    assert len(set(draw(1))) > 1


def test_prefixes_begin_the_translations(bundle: Bundle) -> None:
    lines, prefixes = ["abc", "", "abc", "h"], ["CC", "A", "", "HH"]
    for beam in (1, 3):
        results = translate(bundle, lines, Decoding(beam=beam), n_best=beam, prefixes=prefixes)
        for line, prefix, result in zip(lines, prefixes, results, strict=True):
            if line:
                assert all(each.text.startswith(prefix) for each in result.translations)
        assert results[1].text == ""
        free = translate(bundle, ["abc"], Decoding(beam=beam), n_best=beam)[0]
        assert [each.tokens for each in results[2].translations] == [each.tokens for each in free.translations]


def test_a_prefix_without_tokens_is_refused(bundle: Bundle) -> None:
    """Without the error, translations would begin with a mark for unknown text."""
    with pytest.raises(SettingError, match=r"prefix .* 한 글\."):
        translate(bundle, ["abc"], prefixes=["C한글한C"])


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize(
    ("ratio", "extra", "lengths"), [(1.0, 4, [12, 20]), (2.5, 1, [21, 41]), (0.0, 3, [3, 3]), (0.4, 1, [4, 7])]
)
def test_outputs_have_at_most_ratio_times_source_plus_extra_tokens(
    beam: int, ratio: float, extra: int, lengths: list[int]
) -> None:
    """Sources of 7 and 8 letters have 8 and 9 tokens, the end included, and count as 8 and 16: by eights."""
    decoding = Decoding(beam=beam, max_ratio=ratio, max_extra=extra)
    results = translate(endless(), ["a" * 7, "b" * 8], decoding)
    assert [len(result.translations[0].tokens) for result in results] == lengths
    assert texts(results) == ["a" * length for length in lengths]


@pytest.mark.parametrize("beam", [1, 3])
def test_learned_positions_limit_the_output(beam: int) -> None:
    bundle = endless(positions="learned", max_positions=9)
    results = translate(bundle, ["a", "abc"], Decoding(beam=beam, max_extra=50))
    assert [len(result.translations[0].tokens) for result in results] == [9, 9]


def test_learned_positions_limit_the_source_too() -> None:
    """A line longer than the model has places for is cut like any other that is too long."""
    bundle = endless(positions="learned", max_positions=9)
    long, fits = translate(bundle, ["abc" * 10, "abcabcab"], Decoding(beam=1))
    assert (long.cut, fits.cut) == (True, False)
    assert long.text == fits.text == "a" * 9


def test_both_length_formulas_reach_the_score() -> None:
    bundle = endless()
    with torch.no_grad():
        bundle.model.output.bias.zero_()  # padding and begin aside, every token is as likely
    one = torch.tensor(1 / 5).log().item()
    scores = {
        formula: translate(
            bundle, ["a"], Decoding(beam=1, length_penalty=0.5, length_formula=formula, max_ratio=0.0, max_extra=4)
        )[0].translations[0]
        for formula in ("power", "paper")
    }
    count = len(scores["power"].tokens) + (len(scores["power"].tokens) < 4)
    assert scores["power"].score == pytest.approx(count * one / count**0.5, rel=1e-5)
    assert scores["paper"].score == pytest.approx(count * one / ((5 + count) / 6) ** 0.5, rel=1e-5)


def test_batches_become_smaller_where_memory_is_short(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["abc", "h", "de"]
    usual = texts(translate(bundle, lines, Decoding(beam=3)))
    asked = []
    within = translator._within_memory
    monkeypatch.setattr(translator, "_within_memory", lambda *given: asked.append(within(*given)) or asked[-1])
    monkeypatch.setattr("seq2see.machine.free_memory", lambda: 2**20)
    wide = Decoding(beam=3, batch_tokens=10_000_000)
    assert texts(translate(bundle, lines, wide)) == usual
    assert asked[0].batch_tokens < 10_000


def test_a_beam_larger_than_memory_is_refused(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2see.machine.free_memory", lambda: 2**10)
    with pytest.raises(SettingError, match=r"decoding\.beam = 200 needs .* GiB for outputs of"):
        translate(bundle, ["abc"], Decoding(beam=200, batch_tokens=10_000_000))


def test_a_beam_that_is_too_wide_is_refused(bundle: Bundle) -> None:
    with pytest.raises(SettingError, match=r"decoding\.beam = 1000000: expected at most 200"):
        translate(bundle, ["abc"], n_best=1_000_000)
    with pytest.raises(SettingError, match="lower one"):
        translate(bundle, ["abc"], Decoding(max_extra=900), beam=200)
