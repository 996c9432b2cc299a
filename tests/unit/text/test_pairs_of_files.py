"""Good files give their pairs; bad files give one line that says what, where and what to do."""

import gzip
import json
import shutil
import subprocess
import tracemalloc
from pathlib import Path

import pytest
from pair_files import complaint, sides, write

from seq2see.doctor.raw import RawPairs, Tolerated
from seq2see.errors import DataError
from seq2see.text.corpora import Pairs
from seq2see.text.pair import Pair, Sides
from seq2see.text.rows import ReadingOptions


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def convert(command: str) -> None:
    """Run a command of a message; skip the test if the machine has no iconv."""
    if shutil.which("iconv") is None:
        pytest.skip("no iconv")
    subprocess.run(command, shell=True, check=True)


class TestGoodFiles:
    def test_tsv_with_the_place_of_each_pair(self) -> None:
        pairs = Pairs(write("pairs.tsv", "hello\t안녕\nbye\t잘 가\n"))
        assert list(pairs) == [Pair("hello", "안녕", "pairs.tsv, line 1"), Pair("bye", "잘 가", "pairs.tsv, line 2")]

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("x.tsv", 'a "b\tc,d\ne\tf\n'),
            ("x.csv", '"a ""b","c,d"\ne,f\n'),
            ("x.jsonl", '{"source": "a \\"b", "target": "c,d"}\n["e", "f"]\n'),
        ],
    )
    @pytest.mark.parametrize("ending", ["", ".gz"])
    def test_formats_plain_and_compressed(self, name: str, content: str, ending: str) -> None:
        assert sides(Pairs(write(name + ending, content))) == [('a "b', "c,d"), ("e", "f")]

    @pytest.mark.parametrize("ending", ["", ".gz"])
    def test_parallel_files(self, ending: str) -> None:
        write("train.en" + ending, "one\ntwo, three\n")
        write("train.ko" + ending, "하나\n둘, 셋\n")
        pairs = list(Pairs(f"train.en{ending},train.ko{ending}"))
        assert [(pair.source, pair.target) for pair in pairs] == [("one", "하나"), ("two, three", "둘, 셋")]
        assert pairs[1].where == f"train.en{ending},train.ko{ending}, line 2"

    def test_a_comma_in_the_name_of_one_file(self) -> None:
        assert sides(Pairs(write("a,b.tsv", "x\ty\n"))) == [("x", "y")]

    def test_format_where_the_suffix_does_not_tell(self) -> None:
        assert sides(Pairs(write("pairs.txt", "a,b\n"), ReadingOptions("csv"))) == [("a", "b")]
        pairs = Pairs(write("odd.tsv", "a\tb\n"), ReadingOptions("csv"))
        assert sides(pairs) == [("a", "b")]
        assert pairs.notes == ["odd.tsv: --format csv is ignored: the suffix says .tsv"]

    def test_suffix_in_capitals(self) -> None:
        assert sides(Pairs(write("PAIRS.TSV", "a\tb\n"))) == [("a", "b")]

    def test_a_path_and_no_newline_at_the_end(self) -> None:
        assert sides(Pairs(Path(write("pairs.tsv", "a\tb\nc\td")))) == [("a", "b"), ("c", "d")]

    @pytest.mark.parametrize(
        ("files", "name"),
        [("dir/pairs.tsv.gz", "pairs"), ("a.b.csv", "a.b"), ("train.en,train.ko", "train"), ("en.txt,ko.txt", "en-ko")],
    )
    def test_name(self, files: str, name: str) -> None:
        Path("dir").mkdir()
        for file in files.split(","):
            write(file, "")
        assert Pairs(files).name == name

    def test_iterating_again_gives_the_same(self) -> None:
        pairs = Pairs(write("pairs.tsv", "a\tb\n\tc\n"))
        assert list(pairs) == list(pairs)
        assert pairs.dropped == 1


class TestLines:
    def test_only_newline_ends_a_line(self) -> None:
        text = "a\u2028b\x0bc\x0cd\x85e\rf\tg\nh\ti\n"
        assert sides(Pairs(write("pairs.tsv", text))) == [("a\u2028b\x0bc\x0cd\x85e\rf", "g"), ("h", "i")]

    def test_windows_line_ends_and_byte_order_mark(self) -> None:
        content = b"\xef\xbb\xbfa\tb\r\nc\td\r\n"
        assert sides(Pairs(write("pairs.tsv", content))) == [("a", "b"), ("c", "d")]
        write("m.en", b"\xef\xbb\xbfa\r\n")
        write("m.ko", b"\xef\xbb\xbfb\r\n")
        assert sides(Pairs("m.en,m.ko")) == [("a", "b")]

    def test_surrounding_space_goes_and_inner_space_stays(self) -> None:
        assert sides(Pairs(write("pairs.tsv", "  a  b \t\u3000c \n"))) == [("a  b", "c")]

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("x.tsv", "a\t\n\tb\n \t \n\nc\td\n\n"),
            ("x.csv", 'a,\n"",b\n , \n\nc,d\n\n'),
            ("x.jsonl", '["a", ""]\n{"source": "", "target": "b"}\n[" ", ""]\n\n["c", "d"]\n \n'),
        ],
    )
    def test_empty_sides_and_blank_lines_are_dropped_and_counted(self, name: str, content: str) -> None:
        pairs = Pairs(write(name, content))
        assert pairs.dropped == 0
        assert sides(pairs) == [("c", "d")]
        assert pairs.dropped == 5

    def test_an_empty_file_has_no_pairs(self) -> None:
        assert list(Pairs(write("pairs.tsv", ""))) == []
        assert list(Pairs(write("pairs.csv.gz", ""))) == []

    def test_reading_is_lazy_and_gives_nothing_after_a_fault(self) -> None:
        pairs = iter(Pairs(write("pairs.tsv", "a\tb\nbad\nc\td\n")))
        assert next(pairs).source == "a"
        with pytest.raises(DataError):
            next(pairs)

    def test_memory_does_not_grow_with_the_file(self) -> None:
        write("pairs.tsv.gz", b"source text\t%s\n" % (b"x" * 500) * 10_000)  # 5 MB
        tracemalloc.start()
        try:
            count = sum(1 for _ in Pairs("pairs.tsv.gz"))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert count == 10_000
        assert peak < 1_000_000


class TestColumns:
    def test_one_column(self) -> None:
        write("corpus.tsv", "a\tb\n" * 811 + "I am a student\n")
        assert complaint("corpus.tsv") == (
            "corpus.tsv, line 812: 1 column, expected 2 (source<TAB>target). "
            "Write a copy without such rows: seq2see doctor corpus.tsv --write clean.tsv"
        )
        assert complaint("corpus.tsv", references=True).endswith("(source<TAB>target)")

    def test_one_column_with_a_comma(self) -> None:
        assert complaint(write("none.tsv", "IN: jump OUT: JUMP\n\nIN: run OUT: RUN\n")) == (
            "none.tsv, lines 1 and 3: 1 column, expected 2 (source<TAB>target). "
            "No line has a tab: replace what separates source and target by a tab"
        )
        expected = "corpus.tsv, line 2: 1 column, expected 2 (source<TAB>target). Is the file comma-separated?"
        assert complaint(write("corpus.tsv", "a\tb\nc,d\n")) == expected

    def test_one_column_with_a_tab(self) -> None:
        expected = "corpus.csv, line 1: 1 column, expected 2 (source,target). Is the file tab-separated?"
        assert complaint(write("corpus.csv", "a\tb\n")) == expected

    @pytest.mark.parametrize(
        ("name", "content", "separator"),
        [
            ("x.tsv", "a\tb\na\tb\tc\n", "<TAB>"),
            ("x.csv", "a,b\na,b,c\n", ","),
            ("x.jsonl", '["a","b"]\n["a","b","c"]', ", "),
        ],
    )
    def test_more_columns_are_references_only_when_asked(self, name: str, content: str, separator: str) -> None:
        write(name, content)
        assert complaint(name) == (
            f"{name}, line 2: 3 columns, expected 2 (source{separator}target). "
            f"Write a copy without such rows: seq2see doctor {name} --write clean.tsv"
        )
        assert [pair.references for pair in Pairs(name, references=True)] == [(), ("c",)]

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("x.tsv", "a\tb\t\nc\td\t\t \ne\tf\n"),
            ("x.tsv", "en\tde\t\na\tb\t\nc\td\t\ne\tf\t\n"),
            ("x.csv", "a,b,\nc,d,,\ne,f\n"),
        ],
    )
    def test_empty_cells_at_the_end_are_no_columns(self, name: str, content: str) -> None:
        pairs = Pairs(write(name, content))
        assert sides(pairs) == [("a", "b"), ("c", "d"), ("e", "f")]
        assert [row[1:4] for row in RawPairs(pairs)] == [("a", "b", 0), ("c", "d", 0), ("e", "f", 0)]

    def test_an_empty_cell_of_a_column_that_is_chosen(self) -> None:
        write("x.tsv", "a\tb\t\nc\td\te\n")
        pairs = Pairs("x.tsv", ReadingOptions(columns=Sides("1", "3")))
        assert (sides(pairs), pairs.dropped) == ([("c", "e")], 1)

    def test_several_references_without_the_empty_ones(self) -> None:
        write("x.tsv", "a\tb\tc\t\td\n")
        assert list(Pairs("x.tsv", references=True)) == [Pair("a", "b", "x.tsv, line 1", ("c", "d"))]

    def test_too_few_columns_with_references_too(self) -> None:
        assert "line 1: 1 column" in complaint(write("x.tsv", "a\n"), references=True)

    def test_all_faults_in_one_message(self) -> None:
        write("corpus.tsv", "a\tb\nbad\na\tb\tc\nbad, too\na\tb\n")
        assert complaint("corpus.tsv") == (
            "corpus.tsv, lines 2 and 4: 1 column, expected 2 (source<TAB>target); "
            "corpus.tsv, line 3: 3 columns, expected 2 (source<TAB>target). "
            "Write a copy without such rows: seq2see doctor corpus.tsv --write clean.tsv Is the file comma-separated?"
        )

    def test_many_faults_are_counted(self) -> None:
        write("corpus.tsv", "a\tb\n" + "bad\n" * 1_045)
        expected = "corpus.tsv, lines 2, 3, 4, 5, 6 and 1,040 more: 1 column, expected 2 (source<TAB>target). "
        assert complaint("corpus.tsv").startswith(expected)

    def test_many_kinds_of_fault_are_put_together(self) -> None:
        write("corpus.tsv", "a\tb\n" + "\n".join("\t".join("x" * columns) for columns in range(3, 30)))
        message = complaint("corpus.tsv")
        assert message.count(";") == 5
        assert "corpus.tsv, lines 7, 8, 9, 10, 11 and 17 more: other faults. Write" in message


class TestCsv:
    def test_embedded_newlines_and_where_the_row_begins(self) -> None:
        pairs = list(Pairs(write("x.csv", 'a,"b\nc"\nd,e\n')))
        assert pairs == [Pair("a", "b\nc", "x.csv, line 1"), Pair("d", "e", "x.csv, line 3")]

    def test_header(self) -> None:
        assert sides(Pairs(write("x.csv", "Source, TARGET\na,b\nsource,target\n"))) == [
            ("a", "b"),
            ("source", "target"),
        ]

    def test_windows_file(self) -> None:
        assert sides(Pairs(write("x.csv", b"\xef\xbb\xbfsource,target\r\na,b\r\n"))) == [("a", "b")]

    def test_an_open_quote_is_not_swallowed(self) -> None:
        message = complaint(write("x.csv", 'a,b\nc,"d\ne,f\n'))
        assert message == "x.csv, line 2: not CSV (unexpected end of data). Is a quote left open, or not doubled?"

    def test_an_open_quote_in_a_long_file(self) -> None:
        message = complaint(write("x.csv", 'a,b\nc,"d\n' + f"{'e' * 100},f\n" * 50_000))
        assert message.startswith(
            "x.csv, line 2: not CSV (field larger than field limit (4194304)). Is a quote left open"
        )

    def test_a_lone_carriage_return(self) -> None:
        message = complaint(write("x.csv", "a,b\nc\rd,e\n"))
        assert message.startswith("x.csv, line 2: not CSV (new-line character seen in unquoted field).")


class TestSemicolons:
    """What the reader takes for two columns, the doctor must, too."""

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ("a;b\nc;d\n", [("a", "b"), ("c", "d")]),
            ("\n\na;b\nc, e;d\n", [("a", "b"), ("c, e", "d")]),
            ("source;target\nGood day, Sir;Guten Tag\n", [("Good day, Sir", "Guten Tag")]),
            ("Yes, Sir;Ja, Herr\nNo;Nein\n", [("Yes, Sir", "Ja, Herr"), ("No", "Nein")]),
            ('"a;""b";"c\nd"\ne;f\n', [('a;"b', "c\nd"), ("e", "f")]),
            ("id;en;de\n1;a, b;c\n", [("a, b", "c")]),
            # Commas as ever, whatever stands between them.
            ("a;b,c\nd,e\n", [("a;b", "c"), ("d", "e")]),
            ("a;b,c\nd;e,f\n", [("a;b", "c"), ("d;e", "f")]),
            ('"a;b\nc;d",e\n', [("a;b\nc;d", "e")]),
            ("a,b\nc;d,e\n", [("a", "b"), ("c;d", "e")]),
        ],
    )
    def test_divide_where_commas_do_not(self, content: str, expected: list[tuple[str, str]]) -> None:
        pairs = Pairs(write("x.csv", content))
        assert sides(pairs) == expected
        assert [row[1:3] for row in RawPairs(pairs) if row.source] == expected

    def test_an_open_quote_does_not_change_what_divides(self) -> None:
        assert complaint(write("x.csv", 'a,"b;c\nd,e\n')).startswith("x.csv, line 1: not CSV (unexpected end of data).")

    def test_an_open_quote_far_down_is_still_found(self) -> None:
        message = complaint(write("x.csv", "a;b\n" * 60 + 'c;"d\n'))
        assert message.startswith("x.csv, line 61: not CSV (unexpected end of data).")


class TestJsonl:
    def test_other_keys_and_references(self) -> None:
        write("x.jsonl", json.dumps({"id": 7, "source": "a", "target": "b", "references": ["c", "d"]}))
        assert next(iter(Pairs("x.jsonl"))).references == ()
        assert next(iter(Pairs("x.jsonl", references=True))).references == ("c", "d")

    def test_not_json(self) -> None:
        message = complaint(write("x.jsonl", '["a", "b"]\n{"source": "a"\n' + "[" * 100_000 + "\n"))
        assert message == "x.jsonl, lines 2 and 3: not JSON. JSONL has one record on each line."

    @pytest.mark.parametrize(
        "record",
        [
            '{"source": "a"}',
            '{"source": "a", "target": "b", "references": "c"}',
            '{"source": "a", "target": "b", "references": [1]}',
            '["a", 1]',
            "[]",
            '"ab"',
            "7",
            "null",
        ],
    )
    def test_another_shape(self, record: str) -> None:
        message = complaint(write("x.jsonl", f'["a", "b"]\n{record}\n'))
        assert message == 'x.jsonl, line 2: expected {"source": "...", "target": "..."} or ["...", "..."]'

    @pytest.mark.parametrize(
        ("record", "wrong"),
        [
            ('{"source": "a", "target": 1}', "'target'"),
            ('{"source": "a", "target": null}', "'target'"),
            ('{"source": 57, "target": 60}', "'source' and 'target'"),
        ],
    )
    def test_values_that_are_no_texts(self, record: str, wrong: str) -> None:
        message = complaint(write("x.jsonl", f'["a", "b"]\n{record}\n'))
        assert message == f"x.jsonl, line 2: {wrong}: expected text in quotes"

    def test_a_lone_surrogate(self) -> None:
        message = complaint(write("x.jsonl", r'["\ud83d\ude00", "b"]' + "\n" + r'["\ud83d", "b"]' + "\n"))
        assert message.startswith("x.jsonl, line 2: half of a surrogate pair")


class TestParallel:
    @pytest.mark.parametrize(("sources", "targets"), [(12, 9), (9, 12)])
    def test_unequal_length(self, sources: int, targets: int) -> None:
        write("train.en", "x\n" * sources)
        write("train.ko", "y\n" * targets)
        assert complaint("train.en,train.ko") == (
            f"train.en has {sources} lines, train.ko has {targets}: parallel files must have the same number of lines. "
            "Find the place: seq2see doctor train.en,train.ko"
        )

    def test_tabs_are_text(self) -> None:
        write("t.en", "a\tb\n")
        write("t.ko", "c\n")
        assert sides(Pairs("t.en,t.ko", ReadingOptions("text"))) == [("a\tb", "c")]

    @pytest.mark.parametrize("pairs", ["t.en,", "t.en,t.en,t.en"])
    def test_not_two(self, pairs: str) -> None:
        write("t.en", "a\n")
        assert complaint(pairs).startswith(f"{pairs}: expected two parallel files joined by a comma")

    def test_text_needs_two_files(self) -> None:
        assert complaint(write("t.en", "a\n"), format="text").startswith("t.en: expected two parallel files")

    def test_bad_bytes_in_the_second(self) -> None:
        write("t.en", "a\nb\n")
        write("t.ko", b"\xea\xb0\x80\n\xb0\xa1\n")
        message = "t.ko, line 2: not UTF-8. Other lines of the file are UTF-8. These are probably CP949: correct them."
        assert complaint("t.en,t.ko") == message


class TestBytes:
    @pytest.mark.parametrize("name", ["x.tsv", "x.csv", "x.jsonl", "x.tsv.gz"])
    def test_not_utf8(self, name: str) -> None:
        lines = {"x.csv": ["a,b", "c,\xe9", "e,f"], "x.jsonl": ['["a","b"]', '["c","\xe9"]', '["e","f"]']}
        content = "\n".join(lines.get(name, ["a\tb", "c\t\xe9", "e\tf"])).encode("latin-1")
        assert complaint(write(name, content)).startswith(f"{name}, line 2: not UTF-8. It is probably CP1252. Convert")

    @pytest.mark.parametrize(
        ("text", "codec", "name"),
        [
            ("안녕하세요\t반갑습니다\n", "cp949", "CP949"),
            ("안녕하세요\t반갑습니다\n", "euc_kr", "CP949"),
            ("これは\t日本語の文章です\n", "shift_jis", "CP932"),
            ("テスト\tコンピュータ\n", "shift_jis", "CP932"),
            ("le café\tá côté de la forêt\n", "latin-1", "CP1252"),
            ("it’s “here”\tc’est “là”\n", "cp1252", "CP1252"),
        ],
    )
    def test_the_encoding_is_named_with_the_command_that_converts(self, text: str, codec: str, name: str) -> None:
        write("p.tsv", text.encode(codec) * 3)
        command = f"iconv -f {name} -t UTF-8 p.tsv > p-utf8.tsv"
        expected = f"p.tsv, lines 1, 2 and 3: not UTF-8. It is probably {name}. Convert it: {command}"
        assert complaint("p.tsv") == expected
        convert(command)
        assert Path("p-utf8.tsv").read_text(encoding="utf-8") == text * 3

    def test_each_of_two_files_is_converted(self) -> None:
        write("a.de.gz", "für\n".encode("latin-1"))
        write("a b.ko", "안녕하세요\n".encode("cp949"))
        message = complaint("a.de.gz,a b.ko")
        assert "gzip -dc a.de.gz | iconv -f CP1252 -t UTF-8 | gzip > a-utf8.de.gz" in message
        assert "iconv -f CP949 -t UTF-8 'a b.ko' > 'a b-utf8.ko'" in message

    @pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
    def test_utf16(self, codec: str) -> None:
        content = "\ufeffa\tb\n".encode(codec)
        command = "iconv -f UTF-16 -t UTF-8 x.tsv > x-utf8.tsv"
        assert complaint(write("x.tsv", content)) == f"x.tsv, line 1: UTF-16, expected UTF-8. Convert it: {command}"
        convert(command)
        assert sides(Pairs("x-utf8.tsv")) == [("a", "b")]

    @pytest.mark.parametrize("text", ["a\tb\n", "가나\t다 라\n", "가각\t가\n가\ta\n"])
    @pytest.mark.parametrize(("codec", "name"), [("utf-16-le", "UTF-16LE"), ("utf-16-be", "UTF-16BE")])
    def test_utf16_without_a_byte_order_mark(self, text: str, codec: str, name: str) -> None:
        message = complaint(write("x.tsv", text.encode(codec)))
        assert message.startswith(f"x.tsv, line 1: {name}, expected UTF-8. Convert it: iconv -f {name} ")
        assert [row[1:3] for row in Pairs("x.tsv").rows(Tolerated())] == [
            tuple(line.split("\t")) for line in text.splitlines()
        ]

    def test_truncated_gz(self) -> None:
        whole = gzip.compress(b"a\tb\n" * 1_000)
        Path("x.tsv.gz").write_bytes(whole[:-12])
        assert complaint("x.tsv.gz").startswith("x.tsv.gz: damaged or cut short")

    def test_damaged_gz(self) -> None:
        whole = bytearray(gzip.compress(b"".join(b"%d\tb\n" % number for number in range(1_000))))
        whole[len(whole) // 2] ^= 0xFF
        Path("x.tsv.gz").write_bytes(bytes(whole))
        assert complaint("x.tsv.gz").startswith("x.tsv.gz: ")

    def test_plain_text_called_gz(self) -> None:
        Path("x.tsv.gz").write_text("a\tb\n")
        assert complaint("x.tsv.gz").startswith("x.tsv.gz: not a gzip file")

    def test_gz_called_plain(self) -> None:
        Path("x.tsv").write_bytes(gzip.compress(b"a\tb\n"))
        assert complaint("x.tsv") == "x.tsv, line 1: compressed, but the name does not end in .gz. Rename it"


class TestBeforeReading:
    """These come from the constructor, before anything is read."""

    @pytest.mark.parametrize("name", ["pairs.tsv", "x" * 300 + ".tsv", "nul\0.tsv"])
    def test_no_such_file(self, name: str) -> None:
        with pytest.raises(DataError, match=r": no such file or corpus\. Expected a \.tsv, .* file, two"):
            Pairs(name)

    def test_one_of_two_is_missing(self) -> None:
        write("t.en", "a\n")
        with pytest.raises(DataError, match=r"^t\.ko: no such file"):
            Pairs("t.en,t.ko")

    def test_folder(self) -> None:
        Path("pairs.tsv").mkdir()
        with pytest.raises(DataError, match=r"^pairs\.tsv: a folder\."):
            Pairs("pairs.tsv")

    @pytest.mark.parametrize("name", ["pairs.txt", "pairs.txt.gz"])
    def test_unknown_suffix(self, name: str) -> None:
        write(name, "a\tb\nc d\n")
        with pytest.raises(DataError) as raised:
            Pairs(name)
        assert str(raised.value) == (
            f"{name}: the suffix '.txt' does not determine the format. Use --format tsv, csv, jsonl, po, mo or tmx; "
            "two parallel files are joined by a comma: SOURCES,TARGETS"
        )

    def test_no_suffix(self) -> None:
        with pytest.raises(DataError, match=r"^pairs\.gz: a name without a suffix does not determine the format"):
            Pairs(write("pairs.gz", "a b\n"))

    @pytest.mark.parametrize("name", ["words.train", "words.train.gz", "words"])
    def test_tabs_in_every_line_say_tsv_where_the_suffix_does_not(self, name: str) -> None:
        found = Pairs(write(name, "a\tb\n\nc\td\n"))
        assert (found.format, [(pair.source, pair.target) for pair in found]) == ("tsv", [("a", "b"), ("c", "d")])

    def test_unknown_format(self) -> None:
        with pytest.raises(DataError, match=r"^unknown format 'tvs'\. Did you mean 'tsv'\?"):
            Pairs(write("pairs.tsv", "a\tb\n"), ReadingOptions("tvs"))

    def test_a_file_that_goes_away(self) -> None:
        pairs = Pairs(write("pairs.tsv", "a\tb\n"))
        Path("pairs.tsv").unlink()
        with pytest.raises(DataError, match=r"^pairs\.tsv: cannot be read \(No such file or directory\)"):
            list(pairs)


@pytest.mark.parametrize("header", ["Q,A", "source,target", "Question , Answer"])
def test_a_csv_header_is_no_pair(tmp_path: Path, header: str) -> None:
    path = tmp_path / "chat.csv"
    path.write_text(f"{header}\n안녕,반가워\n", encoding="utf-8")
    assert [(pair.source, pair.target) for pair in Pairs(path)] == [("안녕", "반가워")]


class TestChosenColumns:
    TABLE = ("id,Text one,Réponse,note", "1,a,b,x", "2,c,d,y")

    def table(self, suffix: str) -> str:
        separator = "," if suffix == "csv" else "\t"
        return write(f"x.{suffix}", "\n".join(self.TABLE).replace(",", separator) + "\n")

    @pytest.mark.parametrize("suffix", ["csv", "tsv"])
    @pytest.mark.parametrize(
        "columns",
        [Sides("Text one", "Réponse"), Sides("text ONE", "réponse"), Sides("2", "Réponse"), Sides("Text one", "3")],
    )
    def test_by_name(self, suffix: str, columns: Sides) -> None:
        pairs = list(Pairs(self.table(suffix), ReadingOptions(columns=columns)))
        assert pairs == [Pair("a", "b", f"x.{suffix}, line 2"), Pair("c", "d", f"x.{suffix}, line 3")]

    def test_by_number(self) -> None:
        write("x.tsv", "a\tb\tc\nd\te\tf\n\n")
        pairs = Pairs("x.tsv", ReadingOptions(columns=Sides("3", "1")))
        assert sides(pairs) == [("c", "a"), ("f", "d")]
        assert pairs.dropped == 1
        assert sides(Pairs(write("y.tsv", "a\tb\n"), ReadingOptions(columns=Sides("2", None)))) == [("b", "a")]

    def test_by_number_under_a_header_of_known_names(self) -> None:
        assert sides(Pairs(write("x.csv", "Q,A,label\na,b,0\n"), ReadingOptions(columns=Sides("2", "1")))) == [
            ("b", "a")
        ]

    def test_a_name_before_a_number(self) -> None:
        assert sides(Pairs(write("x.csv", "x,1,2\na,b,c\n"), ReadingOptions(columns=Sides("1", "2")))) == [("b", "c")]

    def test_no_such_column(self) -> None:
        assert complaint(self.table("csv"), columns=Sides("text on", "3")) == (
            "x.csv: no column 'text on' (--source-column). Did you mean 'Text one'? "
            "The columns are 'id', 'Text one', 'Réponse', 'note'; their numbers count from 1"
        )
        assert complaint("x.csv", columns=Sides("1", "9")) == (
            "x.csv: no column '9' (--target-column). "
            "The columns are 'id', 'Text one', 'Réponse', 'note'; their numbers count from 1"
        )
        for number in ("0", "-1", ""):
            assert "no column" in complaint("x.csv", columns=Sides(number, "1"))

    def test_only_one_or_twice_the_same(self) -> None:
        assert complaint(self.table("csv"), columns=Sides("2", None)) == (
            "x.csv: 4 columns ('id', 'Text one', 'Réponse', 'note'): give --target-column, too"
        )
        assert complaint("x.csv", columns=Sides("2", "Text one")) == (
            "x.csv: column 'Text one' cannot be both source and target"
        )

    def test_rows_that_are_too_short(self) -> None:
        write("x.csv", "n,a,b\n1,c,d\n2,e\n3,f,g,h\n")
        assert complaint("x.csv", columns=Sides("a", "b")) == (
            "x.csv, line 3: 2 columns, expected 3. Write a copy without such rows: "
            "seq2see doctor x.csv --source-column a --target-column b --write clean.tsv"
        )

    def test_nothing_but_a_header(self) -> None:
        assert list(Pairs(write("x.csv", "a,b\n"), ReadingOptions(columns=Sides("a", "b")))) == []
        assert list(Pairs(write("y.csv", "\n\n"), ReadingOptions(columns=Sides("a", "b")))) == []


class TestKnownColumns:
    @pytest.mark.parametrize(
        ("header", "source", "target"),
        [
            ("Q,A,label", "Q", "A"),
            ("id,source,target", "source", "target"),
            ("tgt,SRC,score", "SRC", "tgt"),
            ("score,Question,Answer", "Question", "Answer"),
            ("input,output,split", "input", "output"),
            ("prompt,response,x", "prompt", "response"),
            ("prompt,completion,x", "prompt", "completion"),
            ("id,en,de", "en", "de"),
            ("German,English,note", "German", "English"),
            ("번호,한국어,영어", "한국어", "영어"),
            ("번호,원문,번역문", "원문", "번역문"),
            ("word,phones,source of it", "word", "phones"),
            ("label,text,translation", "text", "translation"),
        ],
    )
    @pytest.mark.parametrize("suffix", ["csv", "tsv"])
    def test_are_taken_and_that_is_said(self, header: str, source: str, target: str, suffix: str) -> None:
        rows = "\n".join([header, "1,2,3"])
        pairs = Pairs(write(f"x.{suffix}", rows if suffix == "csv" else rows.replace(",", "\t")))
        names = header.split(",")
        assert sides(pairs) == [(str(names.index(source) + 1), str(names.index(target) + 1))]
        assert pairs.notes == [f"x.{suffix}: the source is column '{source}', the target is column '{target}'"]

    @pytest.mark.parametrize(
        ("header", "languages"),
        [
            ("en,de", ("en", "de")),
            ("English,German", ("en", "de")),
            ("ko,EN_us", ("ko", "en-US")),
            ("Q,A", (None, None)),
        ],
    )
    def test_two_columns(self, header: str, languages: tuple[str, str]) -> None:
        pairs = Pairs(write("x.csv", f"{header}\na,b\n"))
        assert [(pair.source, pair.target, pair.language) for pair in pairs] == [("a", "b", languages[1])]
        assert pairs.languages == Sides(*languages)

    def test_languages_choose_and_turn_around(self) -> None:
        write("x.csv", "en,de,fr\na,b,c\n")
        assert complaint("x.csv") == (
            "x.csv: 3 languages, 'en', 'de', 'fr'. Choose two, for example: --source-column en --target-column de"
        )
        assert sides(Pairs("x.csv", ReadingOptions(columns=Sides("en", "de")))) == [("a", "b")], "as the message says"
        assert sides(Pairs("x.csv", ReadingOptions(columns=Sides("3", "1")))) == [("c", "a")]
        assert sides(Pairs("x.csv", ReadingOptions(languages=Sides("fr", "en")))) == [("c", "a")]
        write("y.csv", "en,de\na,b\n")
        assert sides(Pairs("y.csv", ReadingOptions(languages=Sides("de", None)))) == [("b", "a")]
        assert Pairs("y.csv", ReadingOptions(languages=Sides("de", None))).languages == Sides("de", None)

    def test_two_words_of_a_dictionary_are_no_languages(self) -> None:
        assert sides(Pairs(write("x.tsv", "is\test\nhas\ta\n"))) == [("is", "est"), ("has", "a")]
        assert sides(Pairs(write("y.tsv", "영어\t독일어\na\tb\n"))) == [("a", "b")]
        assert sides(Pairs(write("z.tsv", "eng\tdeu\na\tb\n"))) == [("a", "b")]

    def test_one_language_or_the_same_twice_is_no_header(self) -> None:
        assert sides(Pairs(write("x.csv", "en,hello\n"))) == [("en", "hello")]
        assert sides(Pairs(write("y.csv", "en,en\n"))) == [("en", "en")]

    def test_others_are_an_error_that_shows_the_way(self) -> None:
        assert complaint(write("x.csv", "id,text,class\n1,a,b\n")) == (
            "x.csv, line 1: 3 columns, expected 2 (source,target). The first row is 'id', 'text', 'class'. "
            "To choose, add for example: --source-column text --target-column class"
        )
        assert complaint(write("x.tsv", "Hello there\tyou\t7\n")).endswith(
            "--source-column 1 --target-column 2 (or, if the first line is a header, the names in it)"
        )

    def test_a_column_of_numbers_shows_that_odd_names_are_names(self) -> None:
        write("x.csv", "\ufeffid;Quelle (DE);Ziel\n1;a;b\n")
        assert complaint("x.csv").endswith("example: --source-column 'Quelle (DE)' --target-column Ziel")

    def test_columns_taken_as_references_are_noted(self) -> None:
        pairs = Pairs(write("x.csv", "id;Quelle (DE);Ziel\n1;a;b\n"), references=True)
        assert len(list(pairs)) == 2
        (note,) = pairs.notes
        assert "further references" in note
        assert note.endswith("--source-column 'Quelle (DE)' --target-column Ziel")

    def test_names_that_are_not_well_known_are_read_and_noted(self) -> None:
        content = "\ncommand,action\nturn left,LEFT\njump,JUMP\n"
        for name, text in (("x.csv", content), ("x.tsv", content.replace(",", "\t"))):
            pairs = Pairs(write(name, text))
            assert sides(pairs) == [("command", "action"), ("turn left", "LEFT"), ("jump", "JUMP")]
            assert pairs.notes == [
                f"{name}, line 2: 'command' and 'action' look like names of columns, but are read as a pair. "
                "If they are names, add --source-column command --target-column action"
            ]
            assert len(list(pairs)) == len(list(pairs)) == 3
            assert len(pairs.notes) == 1
            chosen = Pairs(name, ReadingOptions(columns=Sides("command", "action")))
            assert sides(chosen) == [("turn left", "LEFT"), ("jump", "JUMP")]
            assert chosen.notes == []

    def test_columns_chosen_by_number_under_a_header(self) -> None:
        pairs = Pairs(write("x.csv", "id,text,summary\n1,a,b\n"), ReadingOptions(columns=Sides("2", "3")))
        assert sides(pairs) == [("text", "summary"), ("a", "b")]
        assert pairs.notes[0].endswith("add --source-column text --target-column summary")

    def test_nothing_is_noted_under_a_header(self) -> None:
        pairs = Pairs(write("x.tsv", "source\ttarget\nword\tphonemes\n"))
        assert sides(pairs) == [("word", "phonemes")]
        assert len(pairs.notes) == 1

    def test_quotes_around_all_texts_are_noted(self) -> None:
        content = '"good morning"\t"guten Morgen"\n"a ""b"""\t"c"\n'
        for header in ("", "text\tsummary\n", '"text"\t"summary"\n'):
            pairs = Pairs(write("x.tsv", header + content))
            assert sides(pairs)[-2:] == [('"good morning"', '"guten Morgen"'), ('"a ""b"""', '"c"')]
            assert pairs.notes == [
                "x.tsv: all texts are in quotes, which are read as part of them. "
                "Write a copy without quotes: seq2see doctor x.tsv --write clean.tsv"
            ]
        pairs = Pairs("x.tsv", references=True)  # a copy would have no references
        assert len(list(pairs)) == 3
        assert pairs.notes == ["x.tsv: all texts are in quotes, which are read as part of them."]

    @pytest.mark.parametrize(
        "content",
        [
            '"a"\t"b"\n',
            '"a"\tb\n' * 9,
            '"a"\t"b"\n' * 9 + "c\td\n",
            '"Go," he said, "now"\t"Geh", sagte er, "jetzt"\n' * 9,
        ],
        ids=["one row", "one side", "not all", "quotations"],
    )
    def test_other_quotes_are_not_noted(self, content: str) -> None:
        pairs = Pairs(write("x.tsv", content))
        assert len(list(pairs)) > 0
        assert pairs.notes == []

    def test_rows_after_those_that_are_examined(self) -> None:
        many = [(f"source {number}", f"target {number}") for number in range(2500)]
        pairs = Pairs(write("x.tsv", "".join(f"{source}\t{target}\n" for source, target in many)))
        assert sides(pairs) == many
        assert pairs.notes == []

    def test_further_references_of_a_header(self) -> None:
        write("x.csv", "Q,A,label,reference2\na,b,0,c\n")
        assert [pair.references for pair in Pairs("x.csv", references=True)] == [("c",)]
        assert [pair.references for pair in Pairs("x.csv")] == [()]


class TestJsonFields:
    def test_keys_and_paths(self) -> None:
        write("x.jsonl", '{"translation": {"en": "a", "de": "b"}, "d.e": "c"}\n')
        pairs = Pairs("x.jsonl", ReadingOptions(columns=Sides("translation.en", "translation.de")))
        assert list(pairs) == [Pair("a", "b", "x.jsonl, line 1", (), "de")]
        assert pairs.languages == Sides("en", "de")
        assert sides(Pairs("x.jsonl", ReadingOptions(columns=Sides("d.e", "translation.de")))) == [("c", "b")]

    def test_lists_by_number_and_one_of_two(self) -> None:
        assert sides(Pairs(write("x.jsonl", '["a", "b", "c"]\n'), ReadingOptions(columns=Sides("3", "1")))) == [
            ("c", "a")
        ]
        assert sides(
            Pairs(write("y.jsonl", '{"source": "a", "t": "b"}\n'), ReadingOptions(columns=Sides(None, "t")))
        ) == [("a", "b")]

    def test_missing(self) -> None:
        write("x.jsonl", '{"question": "a", "answer": "b"}\n{"question": "a", "answer": null}\n')
        assert complaint("x.jsonl", columns=Sides("qestion", "answer")).startswith(
            "x.jsonl, line 1: no text in 'qestion'; x.jsonl, line 2: no text in 'qestion' and 'answer'. "
            "Did you mean 'question'? There are 'question', 'answer'."
        )
        assert "line 1: no text" in complaint(write("y.jsonl", "7\n"), columns=Sides("a", "b"))

    @pytest.mark.parametrize(
        ("record", "languages"),
        [
            ({"src": "a", "tgt": "b"}, (None, None)),
            ({"id": "7", "Answer": "b", "Question": "a", "references": "none"}, (None, None)),
            ({"input": "a", "output": "b", "n": 1}, (None, None)),
            ({"en": "a", "de": "b"}, ("en", "de")),
        ],
    )
    def test_well_known_names(self, record: dict[str, object], languages: tuple[str | None, str | None]) -> None:
        turned = dict(reversed(record.items()))
        pairs = Pairs(write("x.jsonl", f"{json.dumps(record)}\n{json.dumps(turned)}\n"))
        assert sides(pairs) == sides(pairs) == [("a", "b"), ("a", "b")]
        assert pairs.languages == Sides(*languages)
        assert len(pairs.notes) == 1
        assert "the source is field '" in pairs.notes[0]
        assert [row[1:4] for row in RawPairs(Pairs("x.jsonl"))] == [("a", "b", 0)] * 2

    def test_a_record_that_lacks_a_well_known_name(self) -> None:
        write("x.jsonl", '{"question": "a", "answer": "b"}\n{"question": "a", "answer": null}\n')
        assert complaint("x.jsonl").startswith("x.jsonl, line 2: no text in 'answer'.")
        message = complaint(write("y.jsonl", '{"en": "a", "de": "b", "fr": "c"}\n'))
        assert message.endswith(
            "To choose among 'en', 'de', 'fr', add for example: --source-column en --target-column de"
        )

    def test_fields_are_named_and_the_options_to_choose(self) -> None:
        shape = 'expected {"source": "...", "target": "..."} or ["...", "..."]'
        assert complaint(write("x.jsonl", '{"frage": "a", "antwort": "b", "n": 1}\n')) == (
            f"x.jsonl, line 1: {shape}. To choose among 'frage', 'antwort', "
            "add for example: --source-column frage --target-column antwort"
        )
        assert complaint(write("y.jsonl", '{"id": "7", "translation": {"en": "a", "de": "b"}}\n')).endswith(
            "--source-column translation.en --target-column translation.de"
        )


class TestLanguagesOfParallelFiles:
    @pytest.mark.parametrize(
        ("files", "languages"),
        [
            ("train.en,train.ko", ("en", "ko")),
            ("a.tok.pt_BR.gz,a.tok.de.gz", ("pt-BR", "de")),
            ("en.txt,ko.txt", ("en", "ko")),
            ("a.src,a.tgt", (None, None)),
        ],
    )
    def test_suffixes(self, files: str, languages: tuple[str, str]) -> None:
        for file in files.split(","):
            write(file, "x\n")
        pairs = Pairs(files)
        assert pairs.languages == Sides(*languages)
        assert next(iter(pairs)).language == languages[1]
        assert Pairs(files, ReadingOptions(languages=Sides(None, "xx"))).languages == Sides(languages[0], "xx")
