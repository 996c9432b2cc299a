"""A clean copy keeps, repairs and drops what it should, and replaces nothing that is still needed."""

from pathlib import Path

import pytest

from seq2see.doctor import cleaning, examination
from seq2see.doctor.raw import RawPairs
from seq2see.errors import DataError, SettingError
from seq2see.text.corpora import Pairs
from seq2see.text.pair import Pair


def sentences(count: int) -> list[tuple[str, str]]:
    """Different pairs, of as many words on both sides."""
    return [
        (f"word{' word' * (number % 7)} {number}", f"낱말{' 낱말' * (number % 7)} {number}") for number in range(count)
    ]


def test_what_is_kept_repaired_and_dropped(tmp_path: Path) -> None:
    pairs = sentences(300)
    pairs[1] = "cafÃ© and\x07 more\ttabs", "카페\u2028둘"
    pairs[2] = "안녕하세요", "good morning"
    pairs[3] = "", "빈 글"
    pairs[4] = pairs[0]
    rows = RawPairs([Pair(source, target, f"entry {number}") for number, (source, target) in enumerate(pairs)])
    written = cleaning.write(rows, examination.examine(rows), tmp_path / "clean.tsv")
    assert written == (298, 2, 2)
    clean = (tmp_path / "clean.tsv").read_text(encoding="utf-8").splitlines()
    assert clean[:4] == [
        "\t".join(pairs[0]),
        "café and more tabs\t카페 둘",
        "good morning\t안녕하세요",
        "\t".join(pairs[5]),
    ]
    dropped = (tmp_path / "clean.dropped.tsv").read_text(encoding="utf-8").splitlines()
    assert dropped == [
        "line\treason\tsource\ttarget",
        "entry 3\tempty\t\t빈 글",
        f"entry 4\tduplicates\t{pairs[0][0]}\t{pairs[0][1]}",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean.dropped.tsv", "clean.tsv"]


def test_a_first_line_that_may_be_a_header_is_told_and_kept(tmp_path: Path) -> None:
    lines = ["command\taction", *("\t".join(pair) for pair in sentences(100))]
    (tmp_path / "x.tsv").write_text("\n".join(lines), encoding="utf-8")
    rows = RawPairs(Pairs(tmp_path / "x.tsv"))
    diagnosis = examination.examine(rows)
    (finding,) = diagnosis.problems
    assert (finding.name, finding.count, finding.examples) == ("first line", 1, ((1, "command", "action"),))
    assert "--source-column command --target-column action" in finding.advice
    assert cleaning.write(rows, diagnosis, tmp_path / "clean.tsv") == (101, 0, 0)


def test_quotes_around_all_texts_are_removed(tmp_path: Path) -> None:
    pairs = sentences(100)
    (tmp_path / "x.tsv").write_text("".join(f'"{source}"\t"{target}"\n' for source, target in pairs), encoding="utf-8")
    rows = RawPairs(Pairs(tmp_path / "x.tsv"))
    diagnosis = examination.examine(rows)
    (finding,) = diagnosis.problems
    assert (finding.name, finding.count, finding.action) == ("quotes", 100, "repaired")
    assert diagnosis.changes
    assert cleaning.write(rows, diagnosis, tmp_path / "clean.tsv") == (100, 100, 0)
    clean = Pairs(tmp_path / "clean.tsv")
    assert [(pair.source, pair.target) for pair in clean] == pairs
    assert examination.examine(RawPairs(clean)).problems == ()


def test_a_header_in_quotes_is_no_pair(tmp_path: Path) -> None:
    lines = [("source", "target"), *sentences(100)]
    (tmp_path / "x.tsv").write_text("".join(f'"{source}"\t"{target}"\n' for source, target in lines), encoding="utf-8")
    rows = RawPairs(Pairs(tmp_path / "x.tsv"))
    diagnosis = examination.examine(rows)
    assert {finding.name for finding in diagnosis.problems} == {"quotes", "header"}
    assert cleaning.write(rows, diagnosis, tmp_path / "clean.tsv") == (100, 100, 1)


def test_what_is_dropped_keeps_all_its_columns(tmp_path: Path) -> None:
    lines = ["\t".join(pair) for pair in sentences(100)]
    lines[3] += "\tmore\t\tand more"
    (tmp_path / "x.tsv").write_text("\n".join(lines), encoding="utf-8")
    rows = RawPairs(Pairs(tmp_path / "x.tsv"))
    cleaning.write(rows, examination.examine(rows), tmp_path / "clean.tsv")
    dropped = (tmp_path / "clean.dropped.tsv").read_text(encoding="utf-8").splitlines()
    assert dropped[1:] == [f"4\tcolumns\t{lines[3]}"]


def test_a_file_that_changes_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\tb\nc\td\n")
    rows = RawPairs(Pairs(tmp_path / "x.tsv"))
    diagnosis = examination.examine(rows)
    (tmp_path / "x.tsv").write_text("a\tb\n")
    with pytest.raises(DataError, match="has changed"):
        cleaning.write(rows, diagnosis, tmp_path / "clean.tsv")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tsv"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    original, clean = tmp_path / "x.tsv", tmp_path / "clean.tsv"
    original.write_text("a\tb\n")
    cleaning.check(clean, [original], force=False)
    (tmp_path / "clean.dropped.tsv").write_text("mine")
    with pytest.raises(SettingError, match=r"clean.dropped.tsv: exists already"):
        cleaning.check(clean, [original], force=False)
    cleaning.check(clean, [original], force=True)
    with pytest.raises(SettingError, match="would replace an examined file"):
        cleaning.check(original, [original], force=True)
    with pytest.raises(SettingError, match=r"a \.tsv file"):
        cleaning.check(tmp_path / "clean.csv", [original], force=True)
    with pytest.raises(SettingError, match="no folder"):
        cleaning.check(tmp_path / "none" / "clean.tsv", [original], force=True)
