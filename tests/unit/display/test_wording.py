"""The Korean catalogue: every key is in the sources, placeholders fit, and most of what a user sees has an entry."""

import ast
import json
import re
import string
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer

import seq2see
from seq2see.cli import program
from seq2see.display import wording
from source_texts import template

PACKAGE = Path(seq2see.__file__).parent
CATALOGUE: dict[str, dict[str, str]] = tomllib.loads((PACKAGE / "display" / "korean.toml").read_text(encoding="utf-8"))
FOREIGN = ("library", "composed", "lab")
"""Texts of a library, texts that the sources compose from parts, and those of the lab (tests/unit/lab)."""
OURS = {key: value for name, table in CATALOGUE.items() if name not in FOREIGN for key, value in table.items()}
ERRORS = ("SettingError", "DataError", "TooLongError", "RunError", "RefusedError")
LEAST_OF_HELP, LEAST_OF_ERRORS = 0.9, 0.85
"""Shares of texts that have a Korean one."""
MOST_OLD = 0.02
"""Share of keys that no text of the sources has any more."""


@cache
def sources() -> str:
    """Return all texts of the sources, docstrings and templates, one after another."""
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.html")]
    texts += [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.toml") if path.name != "korean.toml"]
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = template(node)
            if text:
                texts.append(text)
    return "\0".join(" ".join(text.split()) for text in texts)


def errors() -> Iterator[str]:
    """Yield the text of each error that a user can correct, and of each refusal of the server."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
                yield from filter(None, map(template, node.args))


def helps(command: typer.core.TyperGroup | typer.core.TyperCommand) -> Iterator[str]:
    """Yield the help of a command, of its parameters and of its sub-commands."""
    yield from (text for text in (command.help, *(getattr(each, "help", "") for each in command.params)) if text)
    for each in getattr(command, "commands", {}).values():
        yield from helps(each)


@pytest.fixture(autouse=True)
def language(monkeypatch):
    """Restore the language after a test that has chosen another."""
    monkeypatch.setenv("SEQ2SEE_LANG", "en")


@pytest.fixture
def korean(language, monkeypatch):
    monkeypatch.setenv("SEQ2SEE_LANG", "ko")


def test_every_key_is_in_the_sources():
    """A changed message need not wait for its translation: a few keys may be old."""
    missing = [key for key in OURS if " ".join(key.split()) not in sources()]
    assert len(missing) / len(OURS) <= MOST_OLD, f"change or remove these keys of korean.toml: {missing}"


@pytest.mark.parametrize("table", CATALOGUE)
def test_placeholders_match(table):
    for key, value in CATALOGUE[table].items():
        if "{}" in key:
            used = {name for _, name, _, _ in string.Formatter().parse(value) if name is not None}
            assert used <= {str(number) for number in range(key.count("{}"))}, key
        else:
            assert not re.search(r"\{\d", value), key


def test_no_english_text_has_two_translations():
    keys = [key.strip() for table in CATALOGUE.values() for key in table]
    assert len(set(keys)) == len(keys)


def test_help_is_translated(korean):
    texts = {" ".join(text.split()) for text in helps(typer.main.get_command(program.program()))}
    left = sorted(text for text in texts if wording.translated(text) == text)
    assert 1 - len(left) / len(texts) >= LEAST_OF_HELP, left


def test_the_share_of_errors_that_are_translated(korean):
    texts = {text for text in errors() if " " in text}
    done = [text for text in texts if text in OURS]
    assert len(done) / len(texts) >= LEAST_OF_ERRORS, sorted(texts - set(done))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "en"),
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "ko"}, "ko"),
        ({"LANG": "kok_IN"}, "en"),
        ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LC_MESSAGES": "ko_KR", "LANG": "en_US"}, "ko"),
        ({"SEQ2SEE_LANG": "en", "LC_ALL": "ko_KR.UTF-8"}, "en"),
        ({"SEQ2SEE_LANG": "", "LC_ALL": "ko_KR.UTF-8"}, "ko"),
    ],
)
def test_the_language_follows_the_environment(variables, expected, monkeypatch):
    for name in wording.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert wording.language() == expected


def test_parts_of_a_message_keep_their_values_and_may_be_messages_themselves(korean):
    said = wording.translated("date: no such file or corpus. Did you mean 'dates'?")
    assert said == "date: 그런 파일이나 말뭉치가 없습니다. 혹시 'dates'인가요?"
    assert wording.translated("a{0}b: no such file") == "a{0}b: 파일이 없습니다"


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        ("no spaces in the text, 11 characters", "공백이 없는 글, 글자 11종"),
        ("260 tokens (bytes), for both sides", "토큰 260개(bytes), 양쪽 공용"),
        ("300 tokens (pattern smiles) and tags", "토큰 300개(패턴 smiles), 태그 포함"),
        ("4,096 tokens, about 172 pairs", "4,096토큰, 문장 쌍 약 172개"),
        ("for 800 pairs of 7 characters + 6 symbols", "문장 쌍 800개(평균 7자 + 기호 6개)에 적합"),
        (
            "at most 21 s for 60 steps on this CPU, plus validations, at 900 tokens/s",
            "이 CPU에서 60스텝에 최대 21초, 검증 시간 별도(초당 900토큰)",
        ),
        (
            "a.tsv, lines 1, 2 and 7: not UTF-8. It is probably CP949. Convert it: iconv -f CP949",
            "a.tsv, 1, 2, 7번째 줄: UTF-8이 아닙니다. CP949로 보입니다. 다음 명령으로 변환하세요: iconv -f CP949",
        ),
        ("model.d_model = 'x': expected a whole number", "model.d_model = 'x': 정수여야 합니다"),
        (
            "all 20, such as attention: exponent of seconds in n: 2 ± 0.1, expected 1.8 to 2.2",
            "20가지 모두 성립. 예: attention: n에 대한 실행 시간의 지수: 2 ± 0.1, 기대: 1.8~2.2",
        ),
        (
            "the sentence has 201 tokens: at most 128 can be shown. Shorten it",
            "문장: 토큰 201개. 128개까지 볼 수 있습니다. 줄이세요",
        ),
        (
            "the translation has 201 tokens: at most 128 can be shown. Shorten the sentence, or draw a picture: "
            "-o FILE.png",
            "번역문: 토큰 201개. 128개까지 볼 수 있습니다. 문장을 줄이세요. 또는 그림으로 그리세요: -o FILE.png",
        ),
        (
            "warning: the model is not clearly better than copying the source: chrF 0.0 against 24.3 "
            "on 1 validation pair",
            "경고: 모델이 원문을 복사하는 것보다 뚜렷하게 낫지 않습니다(chrF 0.0, 비교 대상 24.3, 검증용 문장 쌍 1개)",
        ),
        (
            "doctor: 12 pairs (0.3 %): the sides seem to be out of step: the matching target is 1 line further up, "
            "from pair 7 on",
            "점검: 문장 쌍 12개(0.3 %): 양쪽 줄이 어긋난 듯함. 짝이 맞는 번역문은 1줄 위에 있음(7번째 쌍부터)",
        ),
        (
            "x: 9 of 9 sampled target tokens are unknown to run, and would stay unknown: train without --from",
            "x: 번역문 표본의 토큰 9개 중 9개를 run이(가) 모릅니다. 계속 모르게 되므로 --from 없이 학습하세요",
        ),
    ],
)
def test_texts_that_are_composed_are_translated_as_a_whole(english, expected, korean):
    assert wording.translated(english) == expected


@pytest.mark.parametrize(
    ("width", "heads", "expected"),
    [(63, 4, "63은 model.heads = 4로"), (62, 10, "62는 model.heads = 10으로"), (65, 7, "65는 model.heads = 7로")],
)
def test_particles_follow_the_sound_of_a_number(width, heads, expected, korean):
    problem = f"model.d_model = {width} is not divisible by model.heads = {heads}: change one, or set model.d_key"
    assert expected in wording.translated(problem)


@pytest.mark.parametrize(
    ("name", "expected"), [("모델", "'모델'을"), ("나무", "'나무'를"), ("run-3", "'run-3'을"), ("abc", "'abc'을(를)")]
)
def test_particles_follow_the_sound_of_a_word_where_it_is_known(name, expected, korean):
    assert f"{expected} 알 수 없습니다" in wording.translated(f"unknown preset '{name}'. Choose one.")


@pytest.mark.parametrize("text", ["", "loss of a dog", "from Rome to London by bus", "x" * 5000, "안녕", "data loss"])
def test_other_texts_stay_as_they_are(text, korean):
    assert wording.translated(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one two three", ["one two", "three"]),
        ("하나 둘 셋", ["하나 둘", "셋"]),
        ("서로다른말이길다 둘", ["서로다른말이길다", "둘"]),
    ],
)
def test_lines_are_as_wide_as_a_terminal_shows_them(text, expected):
    assert wording.wrapped(text, 8) == expected


def test_texts_are_padded_to_columns_of_a_terminal():
    assert wording.padded("하나", 6) == "하나  "
    assert wording.padded("하나", 6, right=True) == "  하나"


def test_nothing_changes_in_english(monkeypatch):
    monkeypatch.setenv("SEQ2SEE_LANG", "en")
    assert wording.translated("x: no such file") == "x: no such file"
    assert wording.translated("x: no such file", to="ko") == "x: 파일이 없습니다"


@pytest.mark.parametrize("words", [["--lang", "ko", "translate", "nowhere"], ["translate", "nowhere", "--lang=ko"]])
def test_the_command_line_speaks_korean(words, cli):
    ended = cli(*words)
    assert ended.code == 2
    assert "실행 폴더가 없습니다" in ended.err


def test_help_in_korean(cli):
    text = cli("train", "--help", "--lang", "ko").out
    assert "사용법: seq2see train" in text
    assert "옵션:" in text
    assert "만들 실행 폴더" in text
    assert "Resume" not in text


def test_an_unknown_language_is_refused(cli):
    ended = cli("--lang", "xx", "data", "list")
    assert ended.code == 2
    assert "--lang xx" in ended.err


def test_json_stays_as_it_is(cli):
    english, korean = cli("data", "list", "--json").out, cli("data", "list", "--json", "--lang", "ko").out
    assert json.loads(english) == json.loads(korean)


@pytest.mark.parametrize(
    ("english", "expected"),
    [("0 s", "0초"), ("12 min 34 s", "12분 34초"), ("2 h 5 min", "2시간 5분"), ("3 min", "3분")],
)
def test_units_of_time_are_translated(english, expected, korean):
    assert wording.translated(english) == expected
