"""What translators keep, read back; and one line about what cannot be."""

import gettext
import io
import struct
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import pytest
from pair_files import complaint, sides, write

from seq2see.text import catalogues
from seq2see.text.corpora import Pairs
from seq2see.text.pair import Pair, Sides
from seq2see.text.rows import ReadingOptions


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


HEADER = 'msgid ""\nmsgstr ""\n"Language: ko\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'


class TestPo:
    def test_entries_with_the_line_they_begin_on(self) -> None:
        write(
            "ko.po",
            HEADER + '#: main.c:7\nmsgid "Open"\nmsgstr "열기"\n\nmsgctxt "menu"\nmsgid "Quit"\nmsgstr "끝내기"\n',
        )
        pairs = Pairs("ko.po")
        assert list(pairs) == [
            Pair("Open", "열기", "ko.po, line 7", (), "ko"),
            Pair("Quit", "끝내기", "ko.po, line 10", (), "ko"),
        ]
        assert pairs.languages == Sides(None, "ko")

    def test_the_language_that_was_given_wins(self) -> None:
        pairs = Pairs(write("x.po", HEADER + 'msgid "a"\nmsgstr "b"\n'), ReadingOptions(languages=Sides("en", "ko-KP")))
        assert next(iter(pairs)).language == "ko-KP"
        assert pairs.languages == Sides("en", "ko-KP")

    def test_several_lines_escapes_and_directives(self) -> None:
        write("x.po", 'msgid ""\n"%d files\\n"\n  "in \\"%s\\"\\t{name}\\\\"\nmsgstr "a" "b"\n"c"\n')
        assert sides(Pairs("x.po")) == [('%d files in "%s"\t{name}\\', "abc")]

    def test_bytes_by_number_are_of_the_files_encoding(self) -> None:
        write("x.po", 'msgid "caf\\303\\251"\nmsgstr "\\x41\\102"\n')
        assert sides(Pairs("x.po")) == [("café", "AB")]

    def test_plural_forms(self) -> None:
        plural = 'msgid "%d file"\nmsgid_plural "%d files"\n'
        write("ru.po", plural + 'msgstr[0] "%d файл"\nmsgstr[1] "%d файла"\nmsgstr[2] "%d файлов"\n')
        assert sides(Pairs("ru.po")) == [("%d file", "%d файл"), ("%d files", "%d файла"), ("%d files", "%d файлов")]
        write("ko.po", plural + 'msgstr[0] "파일 %d개"\n')
        assert sides(Pairs("ko.po")) == [("%d file", "파일 %d개"), ("%d files", "파일 %d개")]

    def test_fuzzy_obsolete_and_untranslated(self) -> None:
        write(
            "x.po",
            '#, fuzzy\nmsgid ""\nmsgstr "Language: de\\n"\n\n'
            '#, c-format, fuzzy\n#| msgid "old"\nmsgid "a"\nmsgstr "A"\n'
            '\n#, c-format\nmsgid "b"\nmsgstr "B"\n\nmsgid "c"\nmsgstr ""\n\n#, fuzzy\n#~ msgid "d"\n#~ msgstr "D"\n\n'
            'msgid "e"\nmsgstr "E"\n',
        )
        pairs = Pairs("x.po")
        assert sides(pairs) == [("b", "B"), ("e", "E")]
        assert pairs.dropped == 1
        assert pairs.notes == ["x.po: 1 fuzzy entry left out"]
        assert pairs.languages.target == "de"
        assert list(pairs) == list(pairs)
        assert len(pairs.notes) == 1

    def test_entries_without_blank_lines_and_a_comment_in_the_middle(self) -> None:
        write("x.po", 'msgid "a"\n# why\nmsgstr "A"\nmsgid "b"\nmsgstr "B"\n# end')
        assert sides(Pairs("x.po")) == [("a", "A"), ("b", "B")]

    @pytest.mark.parametrize("charset", ["EUC-KR", "CP949", "UTF-8"])
    def test_encoding_of_the_header(self, charset: str) -> None:
        text = f'# 김\nmsgid ""\nmsgstr "Content-Type: text/plain; charset={charset}\\n"\n"Last-Translator: 김\\n"\n'
        write("x.po", (text + 'msgid "yes"\nmsgstr "예\\n아니요"\n').encode(charset))
        assert sides(Pairs("x.po")) == [("yes", "예 아니요")]

    def test_an_encoding_whose_letters_contain_a_backslash(self) -> None:
        text = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=SHIFT_JIS\\n"\n\nmsgid "table"\nmsgstr "表"\n'
        assert b"\x95\\" in text.encode("shift_jis")
        assert sides(Pairs(write("x.po", text.encode("shift_jis")))) == [("table", "表")]

    def test_compressed_with_windows_line_ends_and_byte_order_mark(self) -> None:
        write("x.po.gz", b'\xef\xbb\xbfmsgid "a"\r\nmsgstr "b"\r\n')
        assert sides(Pairs("x.po.gz")) == [("a", "b")]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ('msgid "a"\nmsgstr "b\n', "x.po, line 2: a text that does not end in a quote"),
            ('msgid "a" b\nmsgstr "b"\n', "x.po, line 1: text outside the quotes"),
            ('msgid "a"\nmsgstr "\\q"\n', "x.po, line 2: unknown escape \\q"),
            ('msgid "a"\nmsgstr "\\377"\n', "x.po, line 2: the escaped bytes \\377 are not valid UTF-8"),
            ('msgid "a"\nmsgstr "\\777"\n', "x.po, line 2: the escaped bytes \\777 are not valid UTF-8"),
            ('\nmsgid "a"\n\nmsgid "b"\nmsgstr "c"\n', "x.po, line 2: msgid without msgstr"),
            ('msgstr "a"\n', "x.po, line 1: msgstr without msgid"),
            ('msgid "a"\nmsgstr "b"\nmsgstr "c"\n', "x.po, line 3: a second msgstr, without a msgid before it"),
            ('"a"\n', "x.po, line 1: expected msgid before a text in quotes"),
            ('msgid "a"\nmsgstr "b"\n# c\n"d"\n', "x.po, line 4: expected msgid before a text in quotes"),
            ("hello\nworld\n", "x.po, lines 1 and 2: expected msgid, msgstr or a text in quotes"),
        ],
    )
    def test_broken(self, content: str, message: str) -> None:
        assert complaint(write("x.po", content)) == message

    def test_all_faults_together(self) -> None:
        message = complaint(write("x.po", 'msgid "a\nmsgstr "b"\n\nmsgid "c"\nmsgstr "\\q"\n'))
        assert "line 1: a text that" in message
        assert "line 5: unknown escape" in message

    @pytest.mark.parametrize("charset", ["klingon", "hex", "unicode_escape", "undefined", "UTF-7"])
    def test_unknown_encoding(self, charset: str) -> None:
        message = complaint(write("x.po", f'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset={charset}\\n"\n'))
        assert message.startswith(f"x.po: its header says charset={charset}, which is unknown")

    def test_another_encoding_than_the_header_says(self) -> None:
        assert complaint(write("x.po", HEADER.encode() + b'msgid "a"\nmsgstr "\xe9"\n')).startswith(
            "x.po, line 7: not UTF-8"
        )


def compiled(entries: Mapping[str, str], order: str = "<", machine_dependent: int = 0) -> bytes:
    """A .mo file, written as its documentation says: header, two tables of (length, offset), the texts."""
    texts = sorted((key.encode(), text.encode()) for key, text in entries.items())
    more = struct.pack(f"{order}5I", 0, 0, machine_dependent, 0, 0) if machine_dependent else b""
    first = 28 + len(more)
    start = first + 16 * len(texts)
    tables, body = [b"", b""], b""
    for side in (0, 1):
        for pair in texts:
            tables[side] += struct.pack(f"{order}2I", len(pair[side]), start + len(body))
            body += pair[side] + b"\0"
    head = struct.pack(f"{order}7I", 0x950412DE, int(bool(more)), len(texts), first, first + 8 * len(texts), 0, start)
    return head + more + tables[0] + tables[1] + body


MO_HEADER = {"": "Language: ko\nContent-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=n!=1;\n"}
ENTRIES = MO_HEADER | {"Open": "열기", "menu\x04Quit": "끝내기\n", "%d file\0%d files": "파일 %d개\0파일들 %d개"}


class TestMo:
    @pytest.mark.parametrize("order", ["<", ">"])
    @pytest.mark.parametrize("name", ["ko.mo", "ko.mo.gz"])
    def test_both_byte_orders(self, order: str, name: str) -> None:
        pairs = Pairs(write(name, compiled(ENTRIES, order)))
        assert list(pairs) == [
            Pair("%d file", "파일 %d개", f"{name}, entry 2", (), "ko"),
            Pair("%d files", "파일들 %d개", f"{name}, entry 2", (), "ko"),
            Pair("Open", "열기", f"{name}, entry 3", (), "ko"),
            Pair("Quit", "끝내기", f"{name}, entry 4", (), "ko"),
        ]
        assert pairs.languages == Sides(None, "ko")

    def test_gettext_reads_the_same(self) -> None:
        data = compiled(ENTRIES)
        theirs = gettext.GNUTranslations(io.BytesIO(data))
        ours = dict(sides(Pairs(write("x.mo", data))))
        assert ours["Open"] == theirs.gettext("Open")
        assert ours["Quit"] == theirs.pgettext("menu", "Quit").strip()
        assert [ours["%d file"], ours["%d files"]] == [theirs.ngettext("%d file", "%d files", n) for n in (1, 2)]

    def test_without_a_header(self) -> None:
        pairs = Pairs(write("x.mo", compiled({"a": "b"})))
        assert sides(pairs) == [("a", "b")]
        assert pairs.languages == Sides()

    def test_nothing_in_it(self) -> None:
        assert list(Pairs(write("x.mo", compiled({})))) == []

    def test_machine_dependent_entries_are_counted(self) -> None:
        pairs = Pairs(write("x.mo", compiled({"a": "b"}, machine_dependent=3)))
        assert sides(pairs) == [("a", "b")]
        assert pairs.notes == ["x.mo: 3 entries left out: <PRIu64> in them depends on the machine"]

    def test_every_way_to_be_cut_short(self) -> None:
        whole = compiled(ENTRIES)
        for length in range(len(whole)):
            message = complaint(write("x.mo", whole[:length]))
            assert "cut short" in message or "not a .mo catalogue" in message

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"", "x.mo: not a .mo catalogue (it begins with nothing)"),
            (b"hello, world and all", "x.mo: not a .mo catalogue (it begins 68 65 6c 6c)"),
            (struct.pack("<7I", 0x950412DE, 0, 2**31, 28, 28, 0, 0), "too small for the 2,147,483,648 entries"),
            (struct.pack("<7I", 0x950412DE, 2 << 16, 0, 28, 28, 0, 0), "x.mo: revision 2 of .mo, expected 0 or 1"),
            (compiled({"a": "b"})[:28] + struct.pack("<4I", 2**32 - 1, 28, 1, 40), "entry 1: cut short or damaged"),
            (compiled({"a": "b"}).replace(b"b\0", b"\xff\0"), "x.mo, entry 1: not UTF-8, as its header says it is"),
        ],
    )
    def test_broken(self, data: bytes, message: str) -> None:
        assert message in complaint(write("x.mo", data))

    def test_a_large_one_is_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalogues, "LARGEST_MO", 1 << 20)
        assert "larger than 1 MiB" in complaint(write("x.mo.gz", compiled({}) + bytes(2 << 20)))


def memory(*units: Mapping[str, str], source: str = "en", before: str = '<?xml version="1.0"?>') -> str:
    """A TMX file; the texts are XML already."""
    body = "".join(
        "<tu>"
        + "".join(f"<tuv xml:lang={quoteattr(code)}><seg>{text}</seg></tuv>" for code, text in unit.items())
        + "</tu>\n"
        for unit in units
    )
    return f"{before}\n<tmx version='1.4'><header srclang='{source}'/>\n<body>\n{body}</body></tmx>\n"


class TestTmx:
    @pytest.mark.parametrize("name", ["x.tmx", "x.tmx.gz"])
    def test_two_languages(self, name: str) -> None:
        pairs = Pairs(write(name, memory({"en": "a &amp; b", "DE-de": "c"}, {"en": "d", "DE-de": "e"})))
        assert list(pairs) == [
            Pair("a & b", "c", f"{name}, line 4", (), "de-DE"),
            Pair("d", "e", f"{name}, line 5", (), "de-DE"),
        ]
        assert pairs.languages == Sides("en", "de-DE")

    def test_the_source_language_of_the_header_is_the_source(self) -> None:
        unit = {"de-DE": "c", "en-US": "a"}
        assert sides(Pairs(write("x.tmx", memory(unit, source="EN")))) == [("a", "c")]
        assert sides(Pairs(write("x.tmx", memory(unit, source="*all*")))) == [("c", "a")]
        assert sides(Pairs(write("x.tmx", memory(unit)), ReadingOptions(languages=Sides("de", None)))) == [("c", "a")]
        assert sides(Pairs(write("x.tmx", memory({"de-DE": "alone"}, unit, {"en-US": "alone"})))) == [("a", "c")]

    def test_the_language_in_an_older_attribute_and_texts_without_a_language(self) -> None:
        write("x.tmx", memory({"en": "a", "de": "b"}).replace("xml:lang", "lang"))
        assert sides(Pairs("x.tmx")) == [("a", "b")]
        message = complaint(write("x.tmx", memory({"en": "a", "": "b"})))
        assert message == "x.tmx, line 4: a <tuv> without its language (xml:lang)"

    def test_more_than_two_languages(self) -> None:
        write("x.tmx", memory({"en": "a", "de": "b", "fr": "c"}, {"en": "d", "fr": "e"}, {"de": "f"}))
        assert complaint("x.tmx") == (
            "x.tmx: 3 languages, en, de, fr. Choose two, for example: --source-language en --target-language de"
        )
        assert "3 languages" in complaint("x.tmx", languages=Sides("de", None))
        pairs = Pairs("x.tmx", ReadingOptions(languages=Sides("en", "fr")))
        assert sides(pairs) == [("a", "c"), ("d", "e")]
        assert pairs.dropped == 1
        assert pairs.languages == Sides("en", "fr")
        assert sides(Pairs("x.tmx", ReadingOptions(languages=Sides(None, "fr")))) == [("a", "c"), ("d", "e")]
        assert complaint("x.tmx", languages=Sides("en", "ko")) == (
            "x.tmx: no text in 'ko' (--target-language). Its languages are en, de, fr"
        )

    def test_regions_of_the_language_that_was_asked_for(self) -> None:
        write("x.tmx", memory({"en-US": "a", "de": "b"}, {"en-GB": "c", "de": "d"}))
        assert "3 languages" in complaint("x.tmx")
        assert sides(Pairs("x.tmx", ReadingOptions(languages=Sides("en", "de")))) == [("a", "b"), ("c", "d")]

    @pytest.mark.parametrize(
        ("segment", "text"),
        [
            ("a <hi>b</hi> c", "a b c"),
            ("press <bpt i='1'>&lt;b&gt;</bpt>OK<ept i='1'>&lt;/b&gt;</ept>!", "press OK!"),
            ("<it pos='begin'>{\\b </it>bold", "bold"),
            ("one<ph>&lt;br/&gt;</ph>two", "one two"),
            ("one <ph>&lt;br/&gt;<sub>x</sub></ph> two", "one two"),
            ("<ph>%d</ph> files", "%d files"),
            ("a\n    b\r\n c  d", "a b c  d"),
            ("<![CDATA[a < b]]>", "a < b"),
            ("&#x1F600;&#44;", "😀,"),
        ],
    )
    def test_what_is_inside_a_segment(self, segment: str, text: str) -> None:
        assert sides(Pairs(write("x.tmx", memory({"en": segment, "de": "x"})))) == [(text, "x")]

    @pytest.mark.parametrize("encoding", ["UTF-16", "ISO-8859-1", "windows-1252"])
    def test_encodings(self, encoding: str) -> None:
        text = memory({"en": "a", "de": "ü"}, before=f'<?xml version="1.0" encoding="{encoding}"?>')
        assert sides(Pairs(write("x.tmx", text.encode(encoding)))) == [("a", "ü")]

    def test_a_prefix_and_a_document_type(self) -> None:
        text = memory({"en": "a", "de": "b"}, before='<!DOCTYPE tmx SYSTEM "tmx14.dtd">')
        assert sides(Pairs(write("x.tmx", text))) == [("a", "b")]
        texts = "".join(f'<t:tuv xml:lang="{code}"><t:seg>{code}</t:seg></t:tuv>' for code in ("en", "de"))
        write("x.tmx", f'<t:tmx xmlns:t="x"><t:tu>{texts}</t:tu></t:tmx>')
        assert sides(Pairs("x.tmx")) == [("en", "de")]

    @pytest.mark.parametrize(
        "entity",
        [
            '<!ENTITY a "aaa">',
            '<!ENTITY a SYSTEM "file:///etc/passwd">',
            '<!ENTITY % a "aaa">',
            '<!ENTITY a "&b;&b;"> ',
        ],
    )
    def test_entities_are_refused(self, entity: str) -> None:
        text = memory({"en": "&a;", "de": "b"}, before=f"<!DOCTYPE tmx [{entity}]>")
        assert (
            complaint(write("x.tmx", text))
            == "x.tmx, line 1: the entity 'a', which is not supported. Write the text itself"
        )

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "x.tmx, line 1: not XML (no element found)"),
            ("hello", "x.tmx, line 1: not XML (syntax error)"),
            ("<html/>", "x.tmx, line 1: <html>, expected <tmx>"),
            (memory({"en": "a", "de": "b</seg>"}), "x.tmx, line 4: not XML (mismatched tag)"),
            (memory({"en": "a & b", "de": "c"}), "x.tmx, line 4: not XML (not well-formed (invalid token))"),
            (memory({"en": "&nbsp;", "de": "c"}), "x.tmx, line 4: not XML (undefined entity)"),
            (
                memory({"en": "&nbsp;"}, before='<!DOCTYPE tmx SYSTEM "x.dtd">'),
                "line 4: the entity 'nbsp', which is not",
            ),
            (memory({"en": "a"}, before='<?xml version="1.0" encoding="klingon"?>'), "line 1: unknown encoding"),
            (memory({"en": "a"}, before='<?xml version="1.0" encoding="euc-kr"?>'), "line 1: multi-byte encodings"),
        ],
    )
    def test_broken(self, text: str, message: str) -> None:
        assert message in complaint(write("x.tmx", text))

    def test_cut_short_anywhere(self) -> None:
        whole = memory({"en": "a", "de": "b"}).rstrip()
        for length in range(len(whole)):
            assert "not XML" in complaint(write("x.tmx", whole[:length]))

    def test_memory_does_not_grow_with_the_file(self) -> None:
        write("x.tmx.gz", memory(*({"en": escape("x" * 200), "de": "y" * 200} for _ in range(10_000))))  # 5 MB
        tracemalloc.start()
        try:
            count = sum(1 for _ in Pairs("x.tmx.gz"))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert count == 10_000
        assert peak < 2_000_000
