"""Whatever a file holds, its rows come out, with their faults."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see.doctor.raw import RawPairs
from seq2see.errors import DataError
from seq2see.text.corpora import Pairs
from seq2see.text.pair import Pair, Sides
from seq2see.text.rows import FOREIGN, NAMES, NARROW, QUOTED, RECORD, UNPAIRED, WIDE, ReadingOptions, Row


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rows(name: str, content: bytes | str, format: str | None = None) -> list[Row]:
    return list(opened(name, content, format))


def opened(name: str, content: bytes | str, format: str | None = None) -> RawPairs:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return RawPairs(Pairs(name, ReadingOptions(format)))


def test_tsv() -> None:
    assert rows("x.tsv", b"a\tb\r\n\none\na\tb\tc\n \t\xff\n") == [
        Row(1, "a", "b"),
        Row(2, "", ""),
        Row(3, "one", "", NARROW),
        Row(4, "a", "b", WIDE, ("c",)),
        Row(5, "", "\ufffd", FOREIGN),
    ]


def test_csv_records_over_several_lines() -> None:
    assert rows("x.csv", 'q,a\na,"b\nc"\n"d ""e""",f\nx\n') == [
        Row(2, "a", "b\nc"),
        Row(4, 'd "e"', "f"),
        Row(5, "x", "", NARROW),
    ]


def test_a_quote_left_open_costs_one_line() -> None:
    found = rows("x.csv", 'a,b\n"c,d\n' + "e,f\n" * 300)
    assert found[:3] == [Row(1, "a", "b"), Row(2, '"c,d', "", RECORD), Row(3, "e", "f")]
    assert len(found) == 302
    assert rows("x.csv", 'a,b\n"c,d') == [Row(1, "a", "b"), Row(2, '"c,d', "", RECORD)]
    assert rows("x.csv", 'a"b"c,d\n"e"f,g\nh,i\n')[1:] == [Row(2, '"e"f,g', "", RECORD), Row(3, "h", "i")]


def test_quotes_are_those_of_training() -> None:
    content = 'a 5" disk,eine 5 Zoll Platte\n6" and,7"\n"one, ""two""","drei\nvier"\nx,y"z\n'
    found = rows("x.csv", content)
    assert found == [
        Row(1, 'a 5" disk', "eine 5 Zoll Platte"),
        Row(2, '6" and', '7"'),
        Row(3, 'one, "two"', "drei\nvier"),
        Row(5, "x", 'y"z'),
    ]
    assert [(pair.source, pair.target) for pair in Pairs("x.csv")] == [(row.source, row.target) for row in found]


def test_long_fields_of_csv_are_read_alike() -> None:
    long = "word " * 50_000 + "end"
    many_lines = "\n".join(["line"] * 500)
    assert rows("x.csv", f'{long},b\n"{many_lines}",c\n') == [Row(1, long, "b"), Row(2, many_lines, "c")]
    assert [pair.source for pair in Pairs("x.csv")] == [long, many_lines]


@given(st.text(alphabet='ab,"\n\r', max_size=30))
def test_what_training_reads_has_no_fault(tmp_path_factory: pytest.TempPathFactory, content: str) -> None:
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_bytes(content.encode())
    found = [row for row in RawPairs(Pairs(path)) if row.source and row.target]
    try:
        read = [(pair.source, pair.target) for pair in Pairs(path)]
    except DataError:
        return
    assert [(row.source, row.target, row.faults) for row in found] == [(*pair, 0) for pair in read]


def test_columns_by_a_header_or_by_choice() -> None:
    table = "id\tQ\tA\n1\ta\tb\n2\tc\n\n"
    expected = [Row(2, "a", "b"), Row(3, "c", "", NARROW), Row(4, "", "")]
    for name, content in (("x.tsv", table), ("x.csv", table.replace("\t", ","))):
        pairs = opened(name, content)
        assert list(pairs) == expected
        assert pairs.about() == {"columns": ("fewer than 3 columns", "Correct these lines.")}
    assert list(RawPairs(Pairs("x.tsv", ReadingOptions(columns=Sides("A", "1"))))) == [
        Row(2, "b", "1"),
        Row(3, "", "2", NARROW),
        Row(4, "", ""),
    ]
    with pytest.raises(DataError, match="no column 'B'"):
        list(RawPairs(Pairs("x.tsv", ReadingOptions(columns=Sides("B", "A")))))


def test_languages_of_a_header() -> None:
    pairs = opened("x.csv", "note,Korean,English\nn,a,b\n")
    assert list(pairs) == [Row(2, "a", "b")]
    assert pairs.labels == Sides("ko", "en")
    pairs = opened("x.csv", "en,de,fr\na,b,c\n")
    assert list(pairs) == [Row(2, "a", "b")]
    assert "3 languages" in pairs.about()["file"][0]
    assert list(RawPairs(Pairs("x.csv", ReadingOptions(languages=Sides("fr", "en"))))) == [Row(2, "c", "a")]


def test_columns_that_nobody_chose() -> None:
    pairs = opened("x.csv", "id,text,class\n1,a,b\n")
    assert list(pairs) == [Row(1, "id", "text", WIDE, ("class",)), Row(2, "1", "a", WIDE, ("b",))]
    assert pairs.about()["further"][1].endswith("--source-column text --target-column class")


def test_names_read_as_a_pair_in_any_file() -> None:
    Path("a.tsv").write_text("a\tb\n")
    Path("b.csv").write_text("command,action\njump,JUMP\n")
    pairs = RawPairs(Pairs("a.tsv"), Pairs("b.csv"))
    assert [row.faults for row in pairs] == [0, NAMES, 0]
    assert "--source-column command --target-column action" in pairs.about()["first line"][1]
    assert Pairs("b.csv").notes == []


def test_quotes_around_all_texts_are_removed_and_flagged() -> None:
    many = [Row(number, f"word {number}", f'say "{number}"', QUOTED) for number in range(2, 1500)]
    lines = ["source text\ttarget", *(f'"{row.source}"\t"say ""{row.line}"""' for row in many), '"a" b\t"c"']
    assert rows("x.tsv", "\n".join(lines)) == [
        Row(1, "source text", "target"),
        *many,
        Row(1500, '"a" b', '"c"'),
    ]
    assert rows("y.tsv", '"a"\t"b"\n"c"\td\n') == [Row(1, '"a"', '"b"'), Row(2, '"c"', "d")]


def test_fields_of_jsonl() -> None:
    pairs = opened("x.jsonl", 'none\n{"frage": "a", "antwort": "b"}\n')
    assert [row.faults for row in pairs] == [RECORD, RECORD]
    assert "--source-column frage --target-column antwort" in pairs.about()["record"][1]
    assert list(RawPairs(Pairs("x.jsonl", ReadingOptions(columns=Sides("frage", "antwort")))))[1] == Row(2, "a", "b")


def test_a_catalogue_goes_on_after_a_fault() -> None:
    header = 'msgid ""\nmsgstr "Language: ko\\n"\n'
    pairs = opened("x.po", header + 'msgid "a"\nmsgstr "\\q"\nmsgid "b"\nmsgstr ""\nmsgid "c"\nmsgstr "d"\n')
    assert list(pairs) == [Row(5, "b", ""), Row(7, "c", "d")]
    assert pairs.about()["file"][0] == "x.po, line 4: unknown escape \\q"
    assert pairs.labels == Sides(None, "ko")
    pairs = opened("x.mo", b"nothing of the kind")
    assert list(pairs) == []
    assert "not a .mo catalogue" in pairs.about()["file"][0]


def test_several_files_tell_which() -> None:
    Path("a.tsv").write_text("en\tde\na\tb\n")
    Path("b.tsv").write_text("c\td\n")
    pairs = RawPairs(Pairs("a.tsv"), [Pair("e", "f", "somewhere")], Pairs("b.tsv"))
    assert list(pairs) == [Row("a.tsv, line 2", "a", "b"), Row("somewhere", "e", "f"), Row("b.tsv, line 1", "c", "d")]
    assert pairs.paths == [Path("a.tsv"), Path("b.tsv")]
    assert pairs.labels == Sides()


def test_jsonl() -> None:
    lines = ['{"source": "a", "target": "b", "id": 1}', "[1, 2]", "nonsense", '["x", "y", "z"]', "", '["\\ud800", "y"]']
    assert rows("x.jsonl", "\n".join(lines)) == [
        Row(1, "a", "b"),
        Row(2, "[1, 2]", "", RECORD),
        Row(3, "nonsense", "", RECORD),
        Row(4, "x", "y", WIDE, ("z",)),
        Row(5, "", ""),
        Row(6, "\ud800", "y"),
    ]


def test_parallel_files_of_unequal_length() -> None:
    Path("a.en").write_text("one\ntwo\nthree\n")
    Path("a.ko.gz").write_bytes(gzip.compress("하나\n".encode()))
    pairs = RawPairs(Pairs("a.en,a.ko.gz"))
    assert list(pairs) == [Row(1, "one", "하나"), Row(2, "two", "", UNPAIRED), Row(3, "three", "", UNPAIRED)]
    assert pairs.labels == ("en", "ko")


def test_a_byte_order_mark_is_no_text() -> None:
    assert rows("x.tsv", b"\xef\xbb\xbfa\tb\n") == [Row(1, "a", "b")]


def test_utf_16_is_read_and_told() -> None:
    pairs = opened("x.tsv", "안녕\thello\na\tb\n".encode("utf-16"))
    assert list(pairs) == [Row(1, "안녕", "hello"), Row(2, "a", "b")]
    assert "UTF-16" in pairs.about()["file"][0]


def test_carriage_returns_alone_are_read_and_told() -> None:
    many = [(f"word {number}", f"낱말 {number}") for number in range(10_000)]
    content = "".join(f"{source}\t{target}\r" for source, target in many).encode()
    for name, stored in (("x.tsv", b"\xef\xbb\xbf" + content), ("x.tsv.gz", gzip.compress(content[:-1]))):
        pairs = opened(name, stored)
        assert list(pairs) == [Row(number, *pair) for number, pair in enumerate(many, 1)]
        assert pairs.about()["file"][0].startswith(f"{name}: lines end in carriage returns")
    assert opened("x.tsv", b"a\tb\r\nc\td\re\n").about() == {}
    assert rows("x.tsv", b"a\tb\r\n" + b"x" * 100_000 + b"\ty")[1].source == "x" * 100_000


def test_compressed_without_saying_so() -> None:
    pairs = opened("x.tsv", gzip.compress(b"a\tb\n"))
    assert list(pairs) == [Row(1, "a", "b")]
    assert "does not end in .gz" in pairs.about()["file"][0]


def test_a_compressed_file_cut_short() -> None:
    whole = gzip.compress(b"".join(b"%d\t%d\n" % (number, number * number) for number in range(20_000)))
    pairs = opened("x.tsv.gz", whole[: len(whole) // 2])
    found = list(pairs)
    assert 100 < len(found) < 20_000
    assert "damaged or cut short" in pairs.about()["file"][0]
    no_gzip = opened("y.tsv.gz", b"a\tb\n")
    assert list(no_gzip) == []
    assert "not a gzip file" in no_gzip.about()["file"][0]


def test_an_error_of_another_reader_ends_the_rows() -> None:
    def faulty():
        yield Pair("a", "b", "somewhere, entry 1")
        raise DataError("entry 2: broken")

    pairs = RawPairs(faulty())
    assert list(pairs) == [Row("somewhere, entry 1", "a", "b")]
    assert pairs.about()["file"][0] == "entry 2: broken"


def test_another_separator_is_suspected() -> None:
    pairs = opened("x.tsv", "a,b\n")
    assert list(pairs) == [Row(1, "a,b", "", NARROW)]
    assert "--format" in pairs.about()["columns"][1]


@pytest.mark.parametrize("name", ["x.tsv", "x.csv", "x.jsonl", "x.tsv.gz", "x.po", "x.mo", "x.tmx"])
@given(content=st.binary(max_size=200) | st.text(alphabet='ab,"\t\n[]{}\\:', max_size=60).map(str.encode))
def test_no_file_is_an_error(name: str, content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("any") / name
    path.write_bytes(content)
    for row in RawPairs(Pairs(path)):
        assert isinstance(row.line, int | str)


@pytest.mark.parametrize("start", ["", "a"])  # one of them is cut in the middle of a letter
def test_the_encoding_is_guessed_by_the_beginning(start: str) -> None:
    pairs = opened("x.tsv", f"{start}{'안녕하세요' * 20_000}\t{'여러분' * 20_000}\n다시\t한번\n".encode("cp949"))
    assert [row.faults for row in pairs] == [FOREIGN, FOREIGN]
    assert "probably CP949" in pairs.about()["encoding"][1]
    assert "iconv -f CP949 -t UTF-8 x.tsv > x-utf8.tsv" in pairs.about()["encoding"][1]
