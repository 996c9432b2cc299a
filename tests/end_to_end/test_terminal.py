"""Texts of files, names and models cannot act on the terminal that messages are printed to."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from seq2see import conversation
from seq2see.cli import messages
from seq2see.errors import visible

EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\x7f\u202e"
SHOWN = "<U+001B>]0;title<U+0007><U+001B>[2J<U+009B>31m<U+007F><U+202E>"


def harmless(*outputs: str) -> None:
    for output in outputs:
        evil = [each for each in output if each not in "\n\t" and not each.isprintable()]
        assert not evil, repr(output)


def test_what_is_made_visible() -> None:
    assert visible("a b\tc\nd") == "a b\tc\nd"
    assert visible("a\tb", keep="") == "a<U+0009>b"
    assert visible(EVIL) == SHOWN
    assert visible("\u3000\u00a0한글 العربية") == "\u3000\u00a0한글 العربية"
    assert visible("می\u200cخواهم", formatting=True) == "می\u200cخواهم"
    assert visible(EVIL, formatting=True) == SHOWN.replace("<U+202E>", "\u202e")
    assert visible("\udcff") == "<U+DCFF>"  # of a file name that is not UTF-8
    for number in (*range(32), *range(127, 160)):
        if chr(number) not in "\n\t":
            assert visible(chr(number), formatting=True) == f"<U+{number:04X}>"


def test_names_and_texts_in_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli) -> None:
    monkeypatch.chdir(tmp_path)
    Path("header.tsv").write_text(f"{EVIL}\tb\tc\n1\t2\t3\n", encoding="utf-8")
    Path("fields.jsonl").write_text(json.dumps({EVIL: "a", "b": "c"}) + "\n")
    Path(f"{EVIL}.tsv").write_text("one column\n")
    for words in (
        ["train", f"{EVIL} missing.tsv"],
        ["train", f"{EVIL}.tsv"],
        ["train", "header.tsv"],
        ["train", "fields.jsonl"],
        ["train", "header.tsv", "--source-column", EVIL, "--target-column", "d"],
        ["train", "dates", "--set", f"{EVIL}=1"],
        ["translate", EVIL],
        ["draw", "architecture", EVIL],
    ):
        ended = cli(*words)
        assert ended.code == 2
        assert "<U+001B>]0;title" in ended.err.splitlines()[-1]
        harmless(ended.err)
    harmless(cli(EVIL).err)  # Typer quotes the name of an unknown verb
    ended = cli("train", f"{EVIL} missing.tsv", "--debug")
    assert "Traceback" in ended.err
    harmless(ended.err)


@pytest.mark.parametrize("on_terminal", [False, True])
def test_the_doctor_shows_texts_and_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli, on_terminal: bool
) -> None:
    path = tmp_path / f"{EVIL}.tsv"
    path.write_text(f"source {EVIL}\ttarget {EVIL}\n" * 30 + "only one column\n", encoding="utf-8")
    if on_terminal:
        from rich.console import Console

        from seq2see.cli import doctor

        monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True, raising=False)
        monkeypatch.setattr(doctor, "_patience", lambda what: __import__("contextlib").nullcontext())
        monkeypatch.setattr(Console, "is_terminal", False)  # rich's own colours are escape sequences, too
    ended = cli("doctor", path)
    assert ended.code == 0
    assert "<U+001B>" in ended.out
    harmless(ended.out, ended.err)


def test_facts_of_a_run_folder(tmp_path: Path, trained: Path, cli) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    facts = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(facts | {"corpus": EVIL}))
    ended = cli("train", "dates", "--out", run, "--resume")
    assert ended.code == 2
    assert SHOWN in ended.err
    harmless(ended.err)


def test_translations_are_data_in_a_pipe_and_visible_on_a_terminal(
    trained: Path, cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seq2see.decoding import translator

    monkeypatch.setattr(translator.Result, "text", property(lambda result: EVIL), raising=False)
    monkeypatch.setattr(conversation, "answer", lambda result, words: (EVIL, ""))
    assert cli("chat", trained, stdin=b"abc\n").out == f"{EVIL}\n"
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True, raising=False)
    assert cli("chat", trained, stdin=b"abc\n").out == f"{SHOWN.replace('<U+202E>', chr(0x202E))}\n"


def test_a_line_of_data(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    messages.write_line(f"1\t{EVIL}")
    sys.stdout.flush()
    assert capsysbinary.readouterr().out.decode() == f"1\t{EVIL}\n"
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True, raising=False)
    messages.write_line(f"1\t{EVIL}")
    sys.stdout.flush()
    assert "\x1b" not in capsysbinary.readouterr().out.decode()
