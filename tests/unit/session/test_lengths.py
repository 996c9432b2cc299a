"""The longest texts of a training, and the room for outputs, follow the corpus; what the user says comes first."""

import random
from pathlib import Path
from typing import Any

import pytest

import seq2see
from conftest import TINY
from seq2see import config
from seq2see.session import prepare
from seq2see.session.request import Request
from seq2see.session.survey import survey_corpus
from seq2see.text import corpora
from seq2see.text.pair import Pair
from seq2see.text.rows import ReadingOptions

DICE = random.Random(3)
WORDS = ["".join(DICE.choices("abcdefghijklmnop", k=DICE.randint(2, 9))) for _ in range(2000)]


def text(words: int) -> str:
    return " ".join(DICE.choices(WORDS, k=words))


def write(folder: Path, pairs: list[tuple[str, str]]) -> Path:
    file = folder / "pairs.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return file


def settle(folder: Path, pairs: list[tuple[str, str]], *overlays: config.Overlay) -> prepare.Chosen:
    corpus = corpora.open_corpus(str(write(folder, pairs)), ReadingOptions(), lambda event: None)
    return prepare.choose_settings(survey_corpus(Pair(*pair, "here") for pair in pairs), corpus, overlays)


SUMMARIES = [(text(DICE.randint(300, 500)), text(DICE.randint(10, 30))) for _ in range(300)]


def test_long_texts_are_kept_without_an_option(tmp_path: Path) -> None:
    chosen = settle(tmp_path, SUMMARIES)
    assert chosen.survey.pairs == 300
    assert 500 < chosen.settings.data.max_length < 2048
    assert chosen.settings.data.max_length % 64 == 0
    assert chosen.settings.decoding.max_source > chosen.settings.data.max_length


def test_short_texts_keep_the_default(tmp_path: Path) -> None:
    data = settle(tmp_path, [(text(10), text(12)) for _ in range(300)] + SUMMARIES[:3]).settings.data
    assert data.max_length == config.Data.max_length, "a few long pairs are left out"


def test_what_the_user_says_comes_first(tmp_path: Path) -> None:
    own: dict[str, Any] = {"data": {"max_length": 400}}
    assert settle(tmp_path, SUMMARIES, own).settings.data.max_length == 400
    learned: dict[str, Any] = {"model": {"positions": "learned", "max_positions": 512}}
    chosen = settle(tmp_path, SUMMARIES, learned)
    assert chosen.settings.data.max_length == 511, "as many as there are positions"


def test_nobody_trains_on_books(tmp_path: Path) -> None:
    books = [(text(6000), "x") if number % 10 else (text(20), "y") for number in range(60)]
    chosen = settle(tmp_path, books)
    assert chosen.settings.data.max_length == prepare.LONGEST
    assert chosen.survey.pairs == 6
    assert chosen.survey.left_out == 54


def test_a_few_long_pairs_with_most_of_the_text_are_not_counted(tmp_path: Path) -> None:
    """Two pairs of 202 are left out of the training, so its settings are those that the other 200 suggest."""
    short = [(text(5), text(5)) for _ in range(200)]
    chosen, alone = settle(tmp_path, [*short, (text(20_000), text(3)), (text(3), text(3000))]), settle(tmp_path, short)
    assert chosen.survey.left_out == 2
    assert chosen.settings.data == alone.settings.data
    assert chosen.settings.model == alone.settings.model
    assert chosen.settings.training == alone.settings.training


def test_a_convolutional_model_has_positions_for_the_pairs_that_are_kept(tmp_path: Path) -> None:
    """One pair in 25 is far longer than the others, and is left out."""
    letters = ["".join(DICE.choices("abcdefghij", k=300 if number % 25 else 5000)) for number in range(150)]
    model: dict[str, Any] = {"model": {"architecture": "convolutional"}}
    chosen = settle(tmp_path, [(text, text[:100]) for text in letters], model)
    assert chosen.survey.left_out == 6
    assert 300 <= chosen.settings.data.max_length < chosen.settings.model.max_positions < 400


@pytest.mark.parametrize(
    ("pairs", "least", "most"),
    [
        ([(text(60), text(4)) for _ in range(60)], (0.1, 50), (0.4, 50)),
        ([(text(1), text(150)) for _ in range(60)], (2, 200), (10, 1000)),
        ([(text(20), text(20)) for _ in range(60)] + [(text(5), text(150))] * 2, (2, 100), (3, 1000)),
    ],
    ids=["summaries", "much from little", "few long outputs"],
)
def test_room_for_outputs(
    pairs: list[tuple[str, str]], least: tuple[float, int], most: tuple[float, int], tmp_path: Path
) -> None:
    settings = {"model": TINY["model"], "training": {**TINY["training"], "max_steps": 1}}
    run = seq2see.train(write(tmp_path, pairs), tmp_path / "run", settings=settings)
    decoding = run.settings.decoding
    assert least[0] <= decoding.max_ratio <= most[0]
    assert least[1] <= decoding.max_extra <= most[1]
    sources = run.tokenizers.source.encode([source for source, _ in pairs])
    targets = run.tokenizers.target.encode([target for _, target in pairs])
    for source, target in zip(sources, targets, strict=True):
        assert len(target) + 1 <= decoding.max_ratio * (len(source) + 1) + decoding.max_extra


@pytest.mark.parametrize(
    ("pairs", "decoding"),
    [
        ([(text(1), text(600)) for _ in range(40)], {"beam": 60}),
        ([(text(1), text(600)) for _ in range(40)], {"beam": 200}),
        ([(text(1), text(600)) for _ in range(40)], {"beam": 100, "max_extra": 450}),
        ([(text(20), text(200)) for _ in range(40)], {"max_source": 300_000}),
    ],
    ids=["wide beam", "widest beam", "room that the user chose", "long sources"],
)
def test_the_limit_of_outputs_allows_what_the_user_chose(
    pairs: list[tuple[str, str]], decoding: dict[str, Any], tmp_path: Path
) -> None:
    """Without a cap, such a training failed at its end, when its settings were read again."""
    settings = {**TINY, "data": {"max_length": 4000}, "decoding": decoding}
    settings["training"] = {**TINY["training"], "max_steps": 1}
    chosen = settle(tmp_path, pairs, settings)
    corpus = corpora.open_corpus(str(tmp_path / "pairs.tsv"), ReadingOptions(), lambda event: None)
    request = Request(
        tmp_path / "pairs.tsv", tmp_path, None, [settings], ReadingOptions(), False, False, False, None, print
    )
    prepare.write_corpus(tmp_path, corpus, chosen, [], request, None)
    found = config.read_settings(tmp_path).decoding
    assert {key: getattr(found, key) for key in decoding} == decoding
    assert found.max_ratio >= 1
    assert found.max_extra >= config.Decoding.max_extra
