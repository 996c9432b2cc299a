"""A conversation with a small Korean run: pleasant to people, one answer a line to programs, whatever is said to it."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import TINY, Ended
from seq2see.conversation import ENGLISH, KOREAN

TALK = {
    "안녕": "반가워요.",
    "안녕하세요": "네, 안녕하세요.",
    "배고파": "밥부터 먹어요.",
    "오늘 뭐 먹지?": "김치찌개 어때요?",
    "심심해": "산책은 어때요?",
    "잘 자": "좋은 꿈 꿔요.",
    "비가 와": "우산 챙기세요.",
    "너무 추워": "따뜻하게 입어요.",
    "시험 망했어": "다음에 잘하면 돼요.",
    "고마워": "별말씀을요.",
    "여행 가고 싶어": "어디로 가고 싶어요?",
    "SNS 시작했어": "저도 구경할래요.",
    "ㅋㅋㅋ": "재미있나 봐요.",
    "몇 시야?": "시계를 보세요.",
    "주말에 뭐 하지?": "푹 쉬어요.",
    "커피 마실래?": "네, 좋아요.",
}
LONGEST = 40


@pytest.fixture(scope="session")
def korean(once) -> Path:
    """The folder of a run that knows TALK by heart; copy it before changing anything."""
    from seq2see import api

    def make(folder: Path) -> None:
        pairs = folder / "talk.tsv"
        pairs.write_text("".join(f"{said}\t{answer}\n" for said, answer in TALK.items()), encoding="utf-8")
        settings = {**TINY, "data": {"max_length": LONGEST}}
        api.train(pairs, folder / "run", valid=pairs, settings=settings)

    return once("talk", make) / "run"


def test_korean_is_learned_and_answered(korean: Path, cli) -> None:
    ended = cli("chat", korean, stdin="\n".join(TALK).encode())
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == list(TALK.values())


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
@pytest.mark.parametrize(
    "said",
    [
        unicodedata.normalize("NFD", "오늘 뭐 먹지?"),
        "  오늘   뭐\u3000먹지?  ",
        "오늘\u00a0뭐\t먹지?",
        "\ufeff오늘\u200b 뭐 먹\x07지?\x00\r",
    ],
)
def test_odd_forms_are_answered_like_the_usual_one(korean: Path, cli, engine: str, said: str) -> None:
    assert cli("chat", korean, "--engine", engine, stdin=f"{said}\n".encode()) == Ended(0, "김치찌개 어때요?\n", "")


def test_a_corpus_in_decomposed_letters_hears_both_forms(tmp_path: Path, cli) -> None:
    from seq2see import api

    apart = {unicodedata.normalize("NFD", said): answer for said, answer in list(TALK.items())[:6]}
    pairs = tmp_path / "apart.tsv"
    pairs.write_text("".join(f"{said}\t{answer}\n" for said, answer in apart.items()), encoding="utf-8")
    run = api.train(pairs, tmp_path / "run", valid=pairs, settings=TINY).folder
    assert cli("chat", run, stdin="\n".join(apart).encode()).out.splitlines() == list(apart.values())


def test_one_line_for_each_line(korean: Path, cli) -> None:
    """Nothing is said to nothing, and what cannot be answered is told apart from the answers."""
    lines = ["배고파", "", " \t ", "\x00\x1b", "고마워", "Hello, how are you?", "😀", "안녕 😀", "Привет", "뷁"]
    ended = cli("chat", korean, stdin="\n".join(lines).encode())
    assert ended.code == 0
    answers = ended.out.split("\n")
    assert answers.pop() == ""
    assert [bool(answer) for answer in answers] == [True, False, False, False, True, False, False, True, False, False]
    assert ended.err.splitlines() == [f"{number}번째 줄: {KOREAN.foreign}" for number in (6, 7, 9, 10)]


def test_a_script_of_which_training_saw_a_word_is_foreign(korean: Path, cli) -> None:
    assert cli("chat", korean, stdin="SNS 시작했어\n".encode()).out == "저도 구경할래요.\n"
    assert KOREAN.foreign in cli("chat", korean, stdin=b"SSNN NS\n").err


def test_english_is_spoken_to_others(trained: Path, cli) -> None:
    ended = cli("chat", trained, stdin="ab\n한국어\n".encode())
    assert ended == Ended(0, "AB\n\n", f"line 2: {ENGLISH.foreign}\n")


def test_a_language_that_was_named_decides(korean: Path, tmp_path: Path, cli) -> None:
    shutil.copytree(korean, tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    for code, words in (("en", ENGLISH), ("ko-KR", KOREAN)):
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"languages": {"source": code}}))
        assert words.foreign in cli("chat", tmp_path / "run", stdin=b"xyz\n").err


@pytest.mark.parametrize("words", [[], ["--beam", "1"], ["--sample", "--seed", "1"]])
def test_more_than_was_trained_on_is_cut_and_told_once(korean: Path, cli, words: list[str]) -> None:
    long = "배고파 " * 50_000
    ended = cli("chat", korean, *words, stdin=f"안녕\n{long}\n{long}\n고마워\n".encode())
    assert (ended.code, ended.out.count("\n")) == (0, 4)
    assert ended.err == f"2번째 줄: {KOREAN.long.format(limit=LONGEST)}\n"


def test_broken_bytes_end_it_after_the_answers_before(korean: Path, cli) -> None:
    ended = cli("chat", korean, stdin="배고파\n".encode() + b"\xbe\xc8\n")
    assert (ended.code, ended.out) == (2, "밥부터 먹어요.\n")
    assert ended.err == (
        "seq2see: standard input, line 2: not UTF-8. It is probably CP949. Convert it: iconv -f CP949 -t UTF-8\n"
    )


class Terminal:
    """The program on a terminal of its own: type, and read up to the next prompt."""

    def __init__(self, *words: object) -> None:
        pty = pytest.importorskip("pty", reason="no such terminals on Windows")
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "seq2see", *map(str, words)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "dumb"},
            start_new_session=True,
            preexec_fn=_own_terminal,
        )
        os.close(theirs)

    def read(self) -> str:
        """All that comes up to a prompt, or to the end."""
        heard, deadline = b"", time.monotonic() + 300
        while not heard.endswith(b"\n> ") and time.monotonic() < deadline:
            try:
                ready = select.select([self.ours], [], [], 1)[0]
                chunk = os.read(self.ours, 4096) if ready else None
            except OSError:  # how Linux says that the other end is closed
                break
            if chunk == b"":
                break
            heard += chunk or b""
        return heard.decode(errors="replace").replace("\r", "")

    def type(self, keys: bytes) -> str:
        os.write(self.ours, keys)
        return self.read()

    def end(self, key: bytes) -> int:
        """Press a key until the program ends: in the moment after a prompt, readline does not hear it."""
        for _ in range(600):
            with contextlib.suppress(OSError):  # it has just closed the other end
                os.write(self.ours, key)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(0.1)
        raise AssertionError("still running")


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*words: object) -> Terminal:
        opened.append(Terminal(*words))
        return opened[-1]

    yield start
    for each in opened:
        each.process.kill()
        each.process.wait()
        os.close(each.ours)


def _own_terminal() -> None:
    import fcntl
    import signal
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C reaches the program
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # and is heard where the tests themselves run in the background


def test_a_conversation_in_a_terminal(korean: Path, terminal) -> None:
    talk = terminal("chat", korean)
    assert KOREAN.hello in talk.read()
    assert "밥부터 먹어요.\n> " in talk.type("배고파\n".encode())
    for nothing in (b"\n", b"   \n"):
        assert KOREAN.nothing in talk.type(nothing)
    assert KOREAN.foreign in talk.type(b"Good morning\n")
    assert KOREAN.unreadable in talk.type(b"\xff\xff\n")
    assert KOREAN.long.format(limit=LONGEST) in talk.type(("배고파 " * 60 + "\n").encode())
    assert KOREAN.long.format(limit=LONGEST) not in talk.type(("배고파 " * 60 + "\n").encode())
    assert "별말씀을요.\n> " in talk.type("고마워\n".encode())
    assert talk.end(b"\x04") == 0


def test_ctrl_c_ends_a_conversation(korean: Path, terminal) -> None:
    talk = terminal("chat", korean, "--engine", "torch")
    talk.read()
    assert "별말씀을요.\n" in talk.type("고마워\n".encode())
    assert talk.end(b"\x03") == 130
