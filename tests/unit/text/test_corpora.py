"""A name, a file or a slip of the pen: what PAIRS means."""

from pathlib import Path

import pytest

from seq2see.errors import DataError
from seq2see.text import corpora, dates, downloads
from seq2see.text.pair import Pair, Sides
from seq2see.text.rows import ReadingOptions


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_dates_has_three_splits_that_can_be_read_again() -> None:
    corpus = corpora.open_corpus("dates")
    assert corpus.name == "dates"
    assert corpus.valid is not None
    assert corpus.test is not None
    assert list(corpus.valid) == list(corpus.valid) != []
    assert next(iter(corpus.test)).where.startswith("dates test, ")
    assert next(iter(corpus.train)).where.startswith("dates train, ")


def test_a_file_is_a_corpus_without_valid_and_test() -> None:
    Path("mine.tsv").write_text("a\tb\n")
    corpus = corpora.open_corpus("mine.tsv")
    assert (corpus.name, corpus.valid, corpus.test) == ("mine", None, None)
    assert list(corpus.train) == list(corpus.train) == [Pair("a", "b", "mine.tsv, line 1")]


def test_parallel_files() -> None:
    Path("mine.en").write_text("a\n")
    Path("mine.ko").write_text("b\n")
    corpus = corpora.open_corpus("mine.en,mine.ko")
    assert corpus.name == "mine"
    assert [(pair.source, pair.target) for pair in corpus.train] == [("a", "b")]


@pytest.mark.parametrize("open_pairs", [corpora.open_corpus, corpora.for_scoring])
def test_a_slip_in_the_name(open_pairs: object) -> None:
    assert callable(open_pairs)
    with pytest.raises(DataError) as raised:
        open_pairs("date")
    assert str(raised.value) == "date: no such file or corpus. Did you mean 'dates'?"
    with pytest.raises(
        DataError,
        match=r"^xyzzy: no such file or corpus\. Choose from: chatbot-ko, dates, .*, pronouns, pronouns-fi\.$",
    ):
        open_pairs("xyzzy")
    with pytest.raises(DataError, match=r": no such file or corpus\. "):
        open_pairs("long" * 100)
    with pytest.raises(DataError, match=r"^pairs\.tsv: no such file or corpus\. Expected a \.tsv"):
        open_pairs("pairs.tsv")


@pytest.mark.parametrize("open_pairs", [corpora.open_corpus, corpora.for_scoring, corpora.for_validation])
@pytest.mark.parametrize(
    ("given", "missing", "meant"),
    [
        ("pears.tsv", "pears.tsv", "pairs.tsv"),
        ("./pears.tsv", "pears.tsv", "pairs.tsv"),
        ("pears", "pears", "pairs.tsv"),
        ("train.en,train.kr", "train.kr", "train.ko"),
        ("trian.en,train.ko", "trian.en", "train.en"),
    ],
)
def test_a_slip_in_the_name_of_a_file(open_pairs: object, given: str, missing: str, meant: str) -> None:
    for name in ("pairs.tsv", "train.en", "train.ko"):
        Path(name).touch()
    assert callable(open_pairs)
    with pytest.raises(DataError) as raised:
        open_pairs(given)
    assert str(raised.value) == f"{missing}: no such file or corpus. Did you mean '{meant}'?"


def test_a_bare_word_that_is_a_file() -> None:
    Path("mine").write_text("a\tb\n")
    for format in ("tsv", None):
        assert [pair.source for pair in corpora.open_corpus("mine", ReadingOptions(format)).train] == ["a"]
    Path("mine").write_text("a,b\n")
    with pytest.raises(DataError, match="--format"):
        corpora.open_corpus("mine")


def test_the_name_wins_over_a_file_of_that_name() -> None:
    Path("dates").write_text("a\tb\n")
    assert next(iter(corpora.open_corpus("dates", ReadingOptions("tsv")).train)).where.startswith("dates train, ")
    assert [pair.source for pair in corpora.open_corpus("./dates", ReadingOptions("tsv")).train] == ["a"]
    assert [pair.source for pair in corpora.for_scoring("./dates", ReadingOptions("tsv"))] == ["a"]


def test_scoring_takes_the_test_split_or_a_file_with_references() -> None:
    assert list(corpora.for_scoring("dates")) == list(dates.pairs("test"))
    Path("mine.tsv").write_text("a\tb\tc\n")
    assert list(corpora.for_scoring("mine.tsv")) == [Pair("a", "b", "mine.tsv, line 1", ("c",))]
    with pytest.raises(DataError, match="line 1: 3 columns"):
        list(corpora.open_corpus("mine.tsv").train)


def test_catalogue_tells_enough_and_counts_right() -> None:
    entries = downloads.catalogue()
    assert (
        [entry.name for entry in entries]
        == downloads.names()
        == ["dates", "pronouns", "pronouns-fi", "multi30k-en-de", "chatbot-ko"]
    )
    assert all(entry.description and entry.licence for entry in entries)
    corpus = corpora.open_corpus("dates")
    parts = [part for part in (corpus.train, corpus.valid, corpus.test) if part is not None]
    assert sum(1 for part in parts for _ in part) == entries[0].pairs


def test_several_files_one_after_another() -> None:
    Path("a.tsv").write_text("a\tb\n\tx\n")
    Path("m.en").write_text("c\n")
    Path("m.de").write_text("d\n")
    Path("b.csv").write_text("en,de\ne,f\n,\n")
    corpus = corpora.open_corpus(["a.tsv", "m.en,m.de", Path("b.csv")])
    assert corpus.name == "a-m-b"
    assert [tuple(pair) for pair in corpus.train] == [
        ("a", "b", "a.tsv, line 1", (), None),
        ("c", "d", "m.en,m.de, line 1", (), "de"),
        ("e", "f", "b.csv, line 2", (), "de"),
    ]
    assert corpus.train.dropped == 2
    assert corpus.train.notes == ["b.csv: the source is column 'en', the target is column 'de'"]
    assert corpus.train.languages == Sides(None, None)
    assert (corpus.valid, corpus.test) == (None, None)


def test_languages_where_all_files_agree() -> None:
    for name in ("a.en", "a.de", "a.fr"):
        Path(name).write_text("x\n")
    assert corpora.open_corpus(["a.en,a.de", "a.en,a.fr"]).train.languages == Sides("en", None)
    assert corpora.open_corpus(["a.en,a.de", "a.en,a.de"]).train.languages == Sides("en", "de")
    assert corpora.open_corpus("dates").train.languages == Sides()
    given = Sides("xx", "yy")
    assert corpora.open_corpus(["a.en,a.de", "a.en,a.fr"], ReadingOptions(languages=given)).train.languages == given


def test_a_named_corpus_with_a_file() -> None:
    Path("a.tsv").write_text("a\tb\n")
    corpus = corpora.open_corpus(["a.tsv", "dates"])
    assert (corpus.name, corpus.valid) == ("a-dates", None)
    assert sum(1 for _ in corpus.train) == 1 + dates.SIZES["train"]


@pytest.mark.parametrize(
    ("pairs", "name"),
    [
        ("x/a.tsv.gz", "a"),
        (["a.en,a.de", "a.en,a.fr"], "a"),
        (["a.tsv", "b.po"], "a-b"),
        (["a.tsv", "b.tsv", "c.tsv", "d.tsv"], "a-and-3-more"),
        ("dates", "dates"),
    ],
)
def test_the_name_needs_no_file(pairs: str | list[str], name: str) -> None:
    assert corpora.name_of(pairs) == name


def test_a_comma_in_the_name_of_a_file() -> None:
    Path("a,b.tsv").write_text("x\ty\n")
    assert corpora.name_of("a,b.tsv") == corpora.open_corpus("a,b.tsv").name == "a,b"


def test_columns_where_there_are_none() -> None:
    Path("a.en").write_text("x\n")
    with pytest.raises(DataError, match=r"^a\.en,a\.en: no columns to choose from; --source-column is for CSV"):
        corpora.open_corpus("a.en,a.en", ReadingOptions(columns=Sides("1", "2")))
    Path("a.csv").write_text("x,y,z\n1,2,3\n")
    both = corpora.open_corpus(["a.en,a.en", "a.csv"], ReadingOptions(columns=Sides("x", "z")))
    assert [pair.target for pair in both.train] == ["x", "3"]


def test_columns_where_there_are_none_to_score_on() -> None:
    Path("a.en").write_text("x\n")
    for pairs in ("a.en,a.en", "dates"):
        with pytest.raises(DataError, match=rf"^{pairs}: no columns to choose from; --source-column is for CSV"):
            corpora.for_scoring(pairs, ReadingOptions(columns=Sides("1", None)), bound=True)
    # In a training the columns may be those of the other files.
    assert [pair.source for pair in corpora.for_validation("a.en,a.en", ReadingOptions(columns=Sides("1", None)))] == [
        "x"
    ]


def test_no_file_at_all() -> None:
    with pytest.raises(DataError, match="no pairs"):
        corpora.open_corpus([])


def test_columns_of_one_file_do_not_bind_the_others() -> None:
    Path("t.csv").write_text("id,en,de\n1,a,b\n")
    Path("v.tsv").write_text("c\td\n")
    Path("w.csv").write_text("question,answer\ne,f\n")
    Path("x.jsonl").write_text('{"source": "g", "target": "h"}\n["i", "j"]\n')
    Path("m.en").write_text("k\n")
    Path("y.csv").write_text("de,en,id\nm,l,2\n")
    named = Sides("en", "de")
    corpus = corpora.open_corpus(
        ["m.en,m.en", "t.csv", "v.tsv", "w.csv", "x.jsonl", "y.csv"], ReadingOptions(columns=named)
    )
    expected = [("k", "k"), ("a", "b"), ("c", "d"), ("e", "f"), ("g", "h"), ("i", "j"), ("l", "m")]
    for _ in range(2):
        assert [(pair.source, pair.target) for pair in corpus.train] == expected
    assert (
        "v.tsv: no column 'en' and 'de', so --source-column and --target-column are ignored for this file"
        in corpus.train.notes
    )
    for opened in (corpora.for_validation, corpora.for_scoring):
        assert [pair.source for pair in opened("v.tsv", ReadingOptions(columns=named))] == ["c"]
        assert [pair.source for pair in opened("m.en,m.en", ReadingOptions(columns=named))] == ["k"]
    with pytest.raises(DataError, match=r"^v\.tsv: no column 'en'"):
        list(corpora.open_corpus(["v.tsv", "t.csv"], ReadingOptions(columns=named)).train)
    with pytest.raises(DataError, match=r"^v\.tsv: no column 'en'"):
        list(corpora.for_scoring("v.tsv", ReadingOptions(columns=named), bound=True))


def test_a_format_is_for_files_whose_names_do_not_tell() -> None:
    Path("a.txt").write_text("a,b\n")
    Path("b.tsv").write_text("c\td\n")
    Path("m.en").write_text("e\n")
    corpus = corpora.open_corpus(["a.txt", "b.tsv", "m.en,m.en"], ReadingOptions("csv"))
    assert [(pair.source, pair.target) for pair in corpus.train] == [("a", "b"), ("c", "d"), ("e", "e")]
    assert corpus.train.notes == ["b.tsv: --format csv is ignored: the suffix says .tsv"]
    assert [pair.source for pair in corpora.for_validation("m.en,m.en", ReadingOptions("csv"))] == ["e"]
