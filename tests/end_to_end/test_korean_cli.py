"""With `--lang ko`, what the commands print is in Korean: no line has three English words in a row."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import random_words
from seq2see import config

ENGLISH = re.compile(r"(?<![\w./=-])[A-Za-z][a-z]+(?:,? [A-Za-z]?[a-z]+){2,}(?![\w./=-])")
COMMANDS = re.compile(r"seq2see (train|doctor|evaluate|translate)\b.*")
"""Commands that messages recommend; their words are not translated."""
FINE_TUNING = "train {pairs} --from {trained} --out {folder}/tuned --set training.max_steps=4"


def english(text: str) -> list[str]:
    """Return the lines with three English words in a row, apart from commands."""
    return [line for line in text.splitlines() if ENGLISH.search(COMMANDS.sub("", line))]


def test_english_words_are_found() -> None:
    assert english("경고: the model is not better") == ["경고: the model is not better"]
    assert english("bleu  nrefs:1|case:mixed\n자세히 보려면: seq2see doctor all of these.tsv\n안녕 a b c") == []


@pytest.fixture(scope="module")
def own(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the paths that the commands name: pairs with faults, a run, and a copy of it with another seed."""
    folder = tmp_path_factory.mktemp("korean")
    lines = [f"{word}\t{word.upper()}" for word in random_words(700, 5)]
    faults = ["가나다\t가나다", "abc\t" + "ABC" * 50, "\tX", "bcd\tBCD", "bcd\tBDC", "é\tÉ", "one column"]
    (folder / "pairs.tsv").write_text("\n".join([*lines, *faults[:-1]]) + "\n", encoding="utf-8")
    (folder / "faults.tsv").write_text("\n".join([*lines, *faults]) + "\n", encoding="utf-8")
    other = shutil.copytree(trained, folder / "other")
    settings = config.resolve(config.read_toml(other / "settings.toml"), {"training": {"seed": 99}})
    config.write_toml(settings, other / "settings.toml")
    paths = {"pairs": folder / "pairs.tsv", "faults": folder / "faults.tsv", "trained": trained, "other": other}
    return paths | {"folder": folder}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (FINE_TUNING, "미세 조정 전후"),
        ("train {pairs} --out {folder}/new --set training.max_steps=4 --tune 0 --set data.max_length=40", "너무 긺"),
        ("train {pairs} --out {folder}/tried --tune 1 --set training.max_steps=40", "시험 학습"),
        ("evaluate {trained} {pairs} --against {other}", "검출 한계"),
        ("evaluate {trained} {other} {pairs}", "표준편차"),
        ("evaluate {trained} {other} {pairs} --against {trained} --against {other}", "순열 검정"),
        ("doctor {faults} --against {pairs}", "그 세트의 원문"),
        ("export {trained} {folder}/exported", "torch 엔진과 토큰이 같음"),
        ("look {trained} abc -o {folder}/look.html", "브라우저에서 여세요"),
    ],
)
def test_commands_speak_korean(command: str, said: str, own: dict[str, Path], cli: Callable[..., Any]) -> None:
    ended = cli(*command.format(**own).split(), "--lang", "ko")
    assert ended.code == 0, ended.err
    assert said in ended.out + ended.err
    assert english(ended.err + ended.out) == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("train {pairs} --from {trained} --out {folder}/no --set model.heads=3", "토크나이저를 그대로"),
        ("evaluate {trained} {pairs} --against {other} --against {other}", "시드가 달라야"),
        ("import {folder}/nowhere {folder}/imported", "그런 폴더가 없고"),
        ("export {trained} {folder}/argos --to argos", "실행의 언어를 알 수 없습니다"),
        ("train {faults} --out {folder}/no", "줄: 열 1개, 2개여야 합니다"),
        ("translate {trained} --beam 0", "벗어났습니다"),
        ("translate {trained} --prefix 한국어", "토큰으로 쓸 수 없는 부분"),
        ("translate {trained} --to ko", "--to를 빼세요"),
    ],
)
def test_errors_are_korean(command: str, said: str, own: dict[str, Path], cli: Callable[..., Any]) -> None:
    ended = cli(*command.format(**own).split(), "--lang", "ko")
    assert ended.code == 2
    assert said in ended.err
    assert english(ended.err) == []


def test_the_language_does_not_change_json(own: dict[str, Path], cli: Callable[..., Any]) -> None:
    words = ["evaluate", own["trained"], own["pairs"], "--against", own["other"], "--json"]
    korean, plain = (json.loads(cli(*words, "--lang", language).out) for language in ("ko", "en"))
    assert korean["differences"] == plain["differences"]
    assert korean["comparison"]["note"] == plain["comparison"]["note"]
