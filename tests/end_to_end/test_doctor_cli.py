"""`seq2see doctor` as a user meets it: it tells, it never fails on what it tells, and it loses nothing."""

import gzip
import json
import re
from pathlib import Path

import pytest
from PIL import Image

from seq2see.text.corpora import Pairs

WORDS = [f"{letter}{letter}o{letter}a" for letter in "bcdfghklmnprstvz"]
SYLLABLES = ["가", "나", "다", "라", "마", "바", "사", "아", "자", "차", "카", "타", "파", "하", "거", "너"]
QUICK = ["--set", "training.max_steps=1", "--set", "training.warmup_steps=1", "--preset", "tiny"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def good(count: int) -> list[str]:
    """Lines `source<TAB>target`, all different, source and target of as many words."""
    lines = []
    for number in range(count):
        places = [(number * 7919 + step * step * 31) % 16 for step in range(3 + number * 37 % 11)]
        source, target = (" ".join(words[place] for place in places) for words in (WORDS, SYLLABLES))
        lines.append(f"{source} {number}\t{target} {number}")
    return lines


BAD = {
    2: b"only one column",
    3: b"a\tb\tc",
    5: "안녕\t하세요 여러분".encode("cp949"),
    8: b"\t" + "빈 글".encode(),
    13: "cafÃ© du monde\t카페".encode(),
    21: "one\u2028two three\t하나 둘".encode(),
    34: "bell\x07 rings\t종이 울린다".encode(),
    55: "안녕하세요\tgood morning".encode(),
    89: b"left as it is\tleft as it is",
}


def write_bad() -> None:
    lines: list[bytes] = [line.encode() for line in good(400)]
    for number, line in BAD.items():
        lines[number - 1] = line
    lines[143] = lines[0]
    Path("bad.tsv").write_bytes(b"\n".join(lines) + b"\n")


def test_everything_is_told_with_its_line(cli) -> None:
    write_bad()
    ended = cli("doctor", "bad.tsv")
    assert (ended.code, ended.err) == (0, "")
    first, *_, verdict, hint = ended.out.splitlines()
    assert first.startswith("bad.tsv: 400 rows, Latin -> Hangul")
    assert "problems" in verdict
    assert hint == "Write a clean copy with: seq2see doctor bad.tsv --write clean.tsv"
    for number in BAD:
        assert f"\n         line {number}: " in ended.out
    for words in ("columns, 2 pairs (0.5 %)", "are probably CP949: correct", "one<U+2028>two", "bell<U+0007>"):
        assert words in ended.out


def test_a_clean_copy_trains_and_is_clean(cli) -> None:
    write_bad()
    ended = cli("doctor", "bad.tsv", "--write", "clean.tsv")
    assert ended.code == 0
    assert (
        ended.out.splitlines()[-1]
        == "394 pairs in clean.tsv, 4 of them repaired; 6 dropped, listed in clean.dropped.tsv"
    )
    sides = [(pair.source, pair.target) for pair in Pairs("clean.tsv")]
    assert len(sides) == 394
    for pair in (("café du monde", "카페"), ("one two three", "하나 둘"), ("good morning", "안녕하세요")):
        assert pair in sides
    reasons = [line.split("\t")[:2] for line in Path("clean.dropped.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    assert reasons == [
        ["2", "columns"],
        ["3", "columns"],
        ["5", "encoding"],
        ["8", "empty"],
        ["89", "copies"],
        ["144", "duplicates"],
    ]
    again = cli("doctor", "clean.tsv")
    assert again.out.splitlines()[-1] == "clean"
    assert cli("train", "clean.tsv", "--out", "run", *QUICK).code == 0


def test_json_has_everything(cli) -> None:
    write_bad()
    ended = cli("doctor", "bad.tsv", "--json", "--write", "clean.tsv")
    told = json.loads(ended.out)
    assert (told["rows"], told["kept"], told["scripts"]) == (400, 394, ["Latin", "Hangul"])
    assert told["written"] == {"kept": 394, "repaired": 4, "dropped": 6}
    findings = {finding["name"]: finding for finding in told["findings"]}
    assert findings["swapped"]["examples"] == [{"line": 55, "source": "안녕하세요", "target": "good morning"}]
    assert (findings["columns"]["count"], findings["columns"]["severity"]) == (2, "error")
    assert told["problems"] == sum(finding["severity"] != "note" for finding in told["findings"])


def test_a_picture(cli) -> None:
    write_bad()
    Path("lengths.png").write_text("of an earlier day")
    assert cli("doctor", "bad.tsv", "--picture", "lengths.png", "--force").code == 0
    with Image.open("lengths.png") as image:
        assert image.width > 800


def test_more_columns_than_training_accepts_are_an_error(cli) -> None:
    Path("three.tsv").write_text("\n".join(f"{line}\tnote {number}" for number, line in enumerate(good(30))) + "\n")
    ended = cli("doctor", "three.tsv")
    assert "error    further, 30 pairs (100 %): more than two columns. Training refuses it." in ended.out
    assert "--source-column 1 --target-column 2" in ended.out
    refused = cli("train", "three.tsv")
    assert refused.code == 2
    assert "'note 0'. To choose, add for example: --source-column 1" in refused.err


def test_against_a_test_set(cli) -> None:
    lines = good(300)
    Path("train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("test.tsv").write_text("\n".join([*lines[:3], lines[7].upper().replace("\t", " !\t"), "x y\tz"]) + "\n")
    ended = cli("doctor", "train.tsv", "--against", "test.tsv", "--write", "clean.tsv")
    assert "3 of the 5 sources of that set are in this corpus, " in ended.out
    assert "a near-duplicate of the source is in the --against set: 1 of the 5" in ended.out
    assert len(list(Pairs("clean.tsv"))) == 296


def test_parallel_files_out_of_step(cli) -> None:
    lines = [line.split("\t") for line in good(1500)]
    Path("train.en").write_text("".join(f"{source}\n" for source, _ in lines), encoding="utf-8")
    del lines[600]
    Path("train.ko.gz").write_bytes(gzip.compress("".join(f"{target}\n" for _, target in lines).encode()))
    ended = cli("doctor", "train.en,train.ko.gz")
    assert ended.code == 0
    assert "unpaired, 1 pair" in ended.out
    assert "1 line further up" in ended.out
    assert re.search(r"^ +line 60[0-4]: ", ended.out, re.MULTILINE)
    assert "Write a clean copy" not in ended.out  # a copy would be as wrong


def test_two_files_the_wrong_way_round(cli) -> None:
    lines = [line.split("\t") for line in good(100)]
    Path("a.ko").write_text("".join(f"{source}\n" for source, _ in lines), encoding="utf-8")
    Path("a.en").write_text("".join(f"{target}\n" for _, target in lines), encoding="utf-8")
    assert "ko and en seem to be exchanged" in cli("doctor", "a.ko,a.en").out


def test_a_table_with_a_known_header_is_no_problem(cli) -> None:
    rows = [line.replace("\t", ",") + ",0" for line in good(100)]
    Path("chat.csv").write_text("\n".join(["Q,A,label", *rows]) + "\n", encoding="utf-8")
    ended = cli("doctor", "chat.csv")
    assert ended.err == "chat.csv: the source is column 'Q', the target is column 'A'\n"
    assert ended.out.splitlines()[1:] == ["clean"]
    chosen = cli("doctor", "chat.csv", "--source-column", "A", "--target-column", "label")
    assert "the target is always '0'" in chosen.out
    ended = cli("doctor", "chat.csv", "--source-column", "B", "--target-column", "A")
    assert (ended.code, ended.out) == (2, "")
    assert "no column 'B'" in ended.err


def test_several_files_and_catalogues(cli) -> None:
    lines = [line.split("\t") for line in good(60)]
    entries = "\n".join(f'msgid "{source}"\nmsgstr "{target}"\n' for source, target in lines)
    Path("a.po").write_text('msgid ""\nmsgstr "Language: ko\\n"\n' + entries, encoding="utf-8")
    Path("b.tsv").write_text("\n".join("\t".join(line) for line in lines[:2]) + "\n", encoding="utf-8")
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="ko"><seg>{target}</seg></tuv></tu>\n'
        for source, target in lines[58:]
    )
    Path("c.tmx").write_text(f'<tmx><header srclang="en"/><body>{units}</body></tmx>', encoding="utf-8")
    ended = cli("doctor", "a.po", "b.tsv", "--against", "c.tmx", "--write", "clean.tsv", "--json")
    assert ended.code == 0
    told = json.loads(ended.out)
    assert (told["pairs"], told["rows"], told["kept"]) == (["a.po", "b.tsv"], 62, 58)
    places = {finding["name"]: [each["line"] for each in finding["examples"]] for finding in told["findings"]}
    assert places["overlap"] == ["a.po, line 177", "a.po, line 180"]
    assert places["duplicates"] == ["b.tsv, line 1", "b.tsv, line 2"]
    assert cli("doctor", "c.tmx", "--source-language", "ko").out.startswith("c.tmx: 2 rows")


def test_the_built_in_corpus(cli) -> None:
    assert cli("doctor", "dates", "--against", "dates").out.splitlines()[1:] == ["clean"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"\x00\xff" * 50, b"\xff\xfea\x00", b"\x1f\x8b", b'"open\n' * 5],
    ids=["empty", "blank", "binary", "UTF-16", "gzip", "quotes"],
)
@pytest.mark.parametrize("name", ["x.tsv", "x.csv", "x.jsonl", "x.tsv.gz"])
def test_no_file_is_too_bad(cli, name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    picture = ["--picture", "lengths.svg"] if name == "x.tsv" else []  # it does not depend on the format
    ended = cli("doctor", name, "--write", "clean.tsv", *picture)
    assert (ended.code, ended.err) == (0, "")
    assert "problem" in ended.out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["none.tsv"], "none.tsv: no such file or corpus"),
        (["."], ".: a folder"),
        (["daets"], "Did you mean 'dates'?"),
        (["x.dat"], "--format"),
        (["x.tsv", "--format", "tvs"], "Did you mean 'tsv'?"),
        (["x.tsv", "--against", "none.tsv"], "none.tsv: no such file"),
        (["x.tsv", "--write", "x.tsv", "--force"], "would replace an examined file"),
        (["x.tsv", "--write", "there.tsv"], "there.tsv: exists already"),
        (["x.tsv", "--against", "there.tsv", "--write", "there.tsv", "--force"], "would replace an examined file"),
        (["x.tsv", "--picture", "there.png"], "there.png: exists already. Choose another name, or replace it"),
        (["x.tsv", "--write", "clean.csv"], "a .tsv file"),
        (["x.tsv", "--picture", "x.gif"], "unknown picture format '.gif'"),
        (["x.tsv", "--picture", "none/x.png"], "none"),
    ],
)
def test_slips_get_one_line(cli, words: list[str], line: str) -> None:
    for name in ("x.tsv", "there.tsv", "there.png"):
        Path(name).write_text("a b\tc d\n")
    Path("x.dat").write_text("a b, c d\n")
    ended = cli("doctor", *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("seq2see: ")
    assert ended.err.count("\n") == 1
    assert line in ended.err
    for name in ("x.tsv", "there.tsv", "there.png"):
        assert Path(name).read_text() == "a b\tc d\n"


def test_training_warns_and_drops_nothing(cli) -> None:
    lines = good(100)
    Path("twice.tsv").write_text("\n".join([*lines, *lines[:30]]) + "\n", encoding="utf-8")
    Path("valid.tsv").write_text("\n".join(lines[:10]) + "\n", encoding="utf-8")
    ended = cli("train", "twice.tsv", "--valid", "valid.tsv", "--out", "runs/a run", *QUICK)
    assert ended.code == 0
    told = [line for line in ended.err.splitlines() if line.startswith("doctor: ")]
    assert told == [
        "doctor: 20 pairs (15 %): source is also in the validation set: 10 of the 10 sources of that set are "
        "in the training pairs, so that scores on it are higher than on new texts; pairs with the same target: 20",
        "doctor: 30 pairs (23 %): duplicate of an earlier pair",
        "doctor: for details, run: seq2see doctor twice.tsv --against valid.tsv",
    ]
    known = "10 of 10 sources of the validation set are also in the training pairs"
    assert f"warning: {known}, so that its scores are higher than on new texts\n" in ended.err
    report = Path("runs/a run/report.html").read_text()
    assert f"Note that {known}, which makes its scores too good" in report
    assert "seq2see evaluate &#39;runs/a run&#39; PAIRS" in report
    Path("twice.dat").write_bytes(Path("twice.tsv").read_bytes())
    options = ["--format", "tsv", "--source-column", "2", "--target-column", "1"]
    ended = cli("train", "twice.dat", "valid.tsv", *options, "--out", "other", *QUICK)
    assert f"doctor: for details, run: seq2see doctor twice.dat valid.tsv {' '.join(options)}\n" in ended.err
    assert json.loads(Path("runs/a run/manifest.json").read_text())["pairs"] == 130


def test_carriage_returns_alone_are_told_by_both(cli) -> None:
    Path("old.tsv").write_bytes("\r".join(good(100)).encode())
    ended = cli("train", "old.tsv", "--out", "run", *QUICK)
    assert (ended.code, ended.out) == (2, "")
    fault = r"old.tsv: lines end in carriage returns (\r), expected \n. Convert it: tr '\r' '\n'"
    assert ended.err.splitlines()[-1].endswith(fault)
    assert f"{fault}. Training refuses it." in cli("doctor", "old.tsv", "--write", "clean.tsv").out
    assert len(list(Pairs("clean.tsv"))) == 100


def test_names_of_columns_are_told_and_trained_on(cli) -> None:
    Path("x.tsv").write_text("\n".join(["command\taction", *good(60)]) + "\n", encoding="utf-8")
    ended = cli("train", "x.tsv", "--valid", "5", "--out", "run", *QUICK)
    assert ended.code == 0, ended.err
    (line,) = [line for line in ended.err.splitlines() if "names of columns" in line]
    assert line.startswith("x.tsv, line 1: 'command' and 'action' look like names of columns, but are read as a pair.")
    assert line.endswith("add --source-column command --target-column action")
    manifest = json.loads(Path("run/manifest.json").read_text(encoding="utf-8"))
    assert manifest["pairs"] + manifest["validation_pairs"] == 61


def test_quotes_around_all_texts_are_told_by_both(cli) -> None:
    lines = ['"' + line.replace("\t", '"\t"') + '"\n' for line in good(60)]
    Path("x.tsv").write_text("".join(lines), encoding="utf-8")
    ended = cli("train", "x.tsv", "--valid", "5", "--out", "run", *QUICK)
    assert ended.code == 0, ended.err
    (line,) = [line for line in ended.err.splitlines() if "in quotes" in line]
    assert line.endswith("Write a copy without quotes: seq2see doctor x.tsv --write clean.tsv")
    ended = cli("doctor", "x.tsv", "--write", "clean.tsv")
    assert ended.err == ""
    assert "quotes, 60 pairs (100 %): all texts are in quotes" in ended.out
    assert Path("clean.tsv").read_text(encoding="utf-8").splitlines() == good(60)


def test_training_on_healthy_pairs_says_nothing_of_it(cli) -> None:
    Path("pairs.tsv").write_text("\n".join(good(100)) + "\n", encoding="utf-8")
    ended = cli("train", "pairs.tsv", "--out", "run", *QUICK)
    assert ended.code == 0
    assert "doctor" not in ended.err


def test_columns_are_not_those_of_what_it_is_compared_with(cli, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("id,en,de\n1,a b,c\n2,d e,f\n", encoding="utf-8")
    Path("v.en").write_text("a b\n", encoding="utf-8")
    Path("v.de").write_text("c\n", encoding="utf-8")
    ended = cli("doctor", "t.csv", "--source-column", "en", "--target-column", "de", "--against", "v.en,v.de")
    assert ended.code == 0, ended.err
    assert "1 pair" in ended.out
