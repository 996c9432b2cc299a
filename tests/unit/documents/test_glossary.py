"""Glossaries: files that are good and bad, and which terms a sentence has."""

import gzip
import time
from pathlib import Path

import pytest

from seq2see.documents import glossary as module
from seq2see.documents.glossary import Glossary, GlossaryEntry
from seq2see.errors import DataError


def read(tmp_path: Path, text: str, name: str = "terms.tsv") -> Glossary:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return Glossary.read(path)


def found(glossary: Glossary, sentence: str) -> list[tuple[str, tuple[str, ...]]]:
    terms = glossary.terms_in(sentence)
    assert all(sentence[term.start : term.end] == term.text for term in terms)
    return [(term.text, term.forms) for term in terms]


def test_a_tsv_file_with_a_header_forms_and_terms_to_keep(tmp_path: Path) -> None:
    glossary = read(tmp_path, "source\ttarget\nfile\tDatei|Akte\tDateien\n\nLinux\t\nfile name\tDateiname\r\n")
    assert [entry[:2] for entry in glossary.entries.values()] == [
        ("file", ("Datei", "Akte", "Dateien")),
        ("Linux", ()),
        ("file name", ("Dateiname",)),
    ]
    assert found(glossary, "Linux has a file name, and a file.") == [
        ("Linux", ("Linux",)),
        ("file name", ("Dateiname",)),
        ("file", ("Datei", "Akte", "Dateien")),
    ]


def test_csv_and_gz_and_languages_as_names_of_columns(tmp_path: Path) -> None:
    assert len(read(tmp_path, 'en,de\n"file, open",Datei\n', "terms.csv")) == 1
    with gzip.open(tmp_path / "terms.tsv.gz", "wt", encoding="utf-8") as stream:
        stream.write("file\tDatei\n")
    assert len(Glossary.read(tmp_path / "terms.tsv.gz")) == 1
    assert len(read(tmp_path, "German\t독일어\n")) == 1, "both name the same language: a term"


def test_a_dictionary_becomes_a_glossary() -> None:
    glossary = Glossary.of({"file": "Datei", "button": ["Knopf", "Taste"], "Linux": ""})
    assert found(glossary, "The button in the file of Linux") == [
        ("button", ("Knopf", "Taste")),
        ("file", ("Datei",)),
        ("Linux", ("Linux",)),
    ]


BAD = {
    "empty": ("", "no terms in it"),
    "only blank lines": ("\n \n\t\n", "no terms in it"),
    "one column": ("file\nbutton\n", "lines 1 and 2: 1 column, expected 2"),
    "two targets": ("file\tDatei\nbutton\tKnopf\nfile\tAkte\n", "line 3: 'file' is 'Akte' here and 'Datei' in"),
    "too long": (f"{'a' * 300}\tb\n", "line 1: 'aaa.* is longer than 200 characters"),
    "a long form": (f"a\t{'b ' * 200}\n", "is longer than 200 characters"),
    "too many forms": ("a\t" + "|".join(f"b{n}" for n in range(30)) + "\n", "30 translations of one term"),
    "control characters": ("fi\x1b[31mle\tDatei\n", r"'fi\\x1b\[31mle' holds a control character"),
    "no letter": ("...\tDatei\n", "'...' has no letter"),
    "no term": ("\tDatei\n", "a translation without a term"),
    "many faults": ("..\ta\n" * 20, "and more of them"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_file_is_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message) as problem:
        read(tmp_path, text)
    assert "\n" not in str(problem.value)
    assert "terms.tsv" in str(problem.value)


def test_files_that_are_no_glossaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="no such file"):
        Glossary.read(tmp_path / "none.tsv")
    with pytest.raises(DataError, match="a folder"):
        Glossary.read(tmp_path)
    with pytest.raises(DataError, match=r"suffix '\.xlsx'"):
        read(tmp_path, "file\tDatei\n", "terms.xlsx")
    (tmp_path / "latin.tsv").write_bytes("café\tKaffee\n".encode("latin-1"))
    with pytest.raises(DataError, match="line 1: not UTF-8"):
        Glossary.read(tmp_path / "latin.tsv")
    monkeypatch.setattr(module, "LARGEST_FILE", 1000)
    with pytest.raises(DataError, match="larger than"):
        read(tmp_path, "file\tDatei\n" * 200)
    monkeypatch.setattr(module, "MOST_ENTRIES", 3)
    with pytest.raises(DataError, match="more than 3 terms"):
        Glossary([GlossaryEntry(f"a{number}", ("b",)) for number in range(4)])


def test_equal_rows_count_once(tmp_path: Path) -> None:
    assert len(read(tmp_path, "file\tDatei\nfile\t Datei \n")) == 1


@pytest.mark.parametrize(
    ("term", "sentence", "expected"),
    [
        ("file", "File it.", ["File"]),
        ("file", "Files and profile", []),
        ("file", "the FILE", []),
        ("file name", "The File Name is", ["File Name"]),
        ("file name", "file  name", []),
        ("file name", "file\u00a0name", ["file\u00a0name"]),
        ("IT", "it is IT", ["IT"]),
        ("C++", "in C++, not C", ["C++"]),
        ("cafe\u0301", "the café", ["café"]),
        ("café", "the cafe\u0301!", ["cafe\u0301"]),
        ("파일", "파일을 여는 파일럿 파일들은", ["파일", "파일"]),
        ("API", "API를 부른다", ["API"]),
        ("文件", "打开文件夹和文件", ["文件", "文件"]),
        ("ファイル", "このファイルを開く", ["ファイル"]),
        ("ไฟล์", "เปิดไฟล์นี้", ["ไฟล์"]),
        ("e", "naïve e\u0301 e", ["e"]),
    ],
)
def test_whole_words_in_many_scripts(term: str, sentence: str, expected: list[str]) -> None:
    assert [text for text, _ in found(Glossary.of({term: "x"}), sentence)] == expected


def test_the_longest_term_wins_and_none_overlap() -> None:
    glossary = Glossary.of({"a": "1", "a b": "2", "a b c": "3", "b c d": "4"})
    assert [text for text, _ in found(glossary, "a b c d a b d a")] == ["a b c", "a b", "a"]


def test_a_capital_letter_of_the_sentence_allows_one_in_the_translation() -> None:
    glossary = Glossary.of({"file": "fichier", "iPhone": ""})
    assert found(glossary, "File") == [("File", ("fichier", "Fichier"))]
    assert found(glossary, "a file") == [("file", ("fichier",))]
    assert [term.is_kept for term in glossary.terms_in("an iPhone file")] == [True, False]


def test_time_does_not_grow_with_the_number_of_terms() -> None:
    """Ten thousand terms with the same beginning, and a sentence in which each place looks like all of them."""
    glossary = Glossary.of({f"{'中' * (2 + number % 150)}{number}": "x" for number in range(10_000)})
    begun = time.process_time()
    assert glossary.terms_in("中" * 5000) == []
    assert time.process_time() - begun < 5
