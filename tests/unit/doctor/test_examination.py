"""What is planted is found, at its line and nothing else; healthy corpora of every kind come out clean."""

import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2see.doctor import cleaning, examination
from seq2see.doctor.findings import KINDS, REASONS, Diagnosis, Finding
from seq2see.doctor.raw import RawPairs
from seq2see.text import corpora
from seq2see.text.corpora import Pairs
from seq2see.text.pair import Pair

DICE = random.Random(7)
LATIN = ["".join(DICE.choices("abcdefghijklmnopqrstuvwxyz", k=DICE.randint(2, 9))) for _ in range(3000)]
GERMAN = ["".join(DICE.choices("abcdefghiklmnoprstuwzäöü", k=DICE.randint(3, 10))) for _ in range(3000)]
KOREAN = ["".join(chr(DICE.randrange(0xAC00, 0xB000)) for _ in range(DICE.randint(1, 4))) for _ in range(3000)]
PHONES = ["AH", "B", "K", "D", "IY", "S", "T", "OW", "R", "N"]


def sentences(count: int, words: list[str] = KOREAN) -> list[tuple[str, str]]:
    """Different sources, and targets of as many words: like translations."""
    found = []
    for number in range(count):
        length = DICE.randint(3, 15)
        found.append(
            (f"{' '.join(DICE.choices(LATIN, k=length))} {number}", f"{' '.join(DICE.choices(words, k=length))}")
        )
    return found


def examine(pairs: Iterable[tuple[str, str]], against: Iterable[tuple[str, str]] | None = None) -> Diagnosis:
    def raw(each: Iterable[tuple[str, str]]) -> RawPairs:
        return RawPairs([Pair(source, target, "") for source, target in each])

    return examination.examine(raw(pairs), None if against is None else raw(against))


def found(diagnosis: Diagnosis) -> dict[str, Finding]:
    return {finding.name: finding for finding in diagnosis.findings}


def lines(diagnosis: Diagnosis, name: str) -> list[int | str]:
    return [example.line for example in found(diagnosis)[name].examples]


HEALTHY = {
    "translation": sentences(1000),
    "translation between Latin scripts": sentences(1000, GERMAN),
    "letters to sounds": [(word.upper(), " ".join(DICE.choices(PHONES, k=len(word)))) for word in dict.fromkeys(LATIN)],
    "molecules": [("".join(DICE.choices("CNOcno()=1#", k=30)) + str(n), f"CCO{n}") for n in range(500)],
    "code": [(f"return the {n}th {DICE.choice(LATIN)}", f"def f_{n}(x): return x[{n}]  # {n}") for n in range(500)],
    "sums": [(f"{n} + {n + 1}", str(2 * n + 1)) for n in range(1, 500)],
    "capitals": [(word, word.upper()) for word in dict.fromkeys(LATIN)],
    "one pair": [("hello", "bonjour")],
    "nineteen": sentences(19),
    "names stay Latin": [
        (source, f"LibreOffice {target}" if n % 3 else "GNOME " + source.split()[0])
        for n, (source, target) in enumerate(sentences(600))
    ],
    "questions and answers": list(
        zip([source for source, _ in sentences(900)], [source for source, _ in reversed(sentences(900))], strict=True)
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_corpus_is_clean(name: str) -> None:
    diagnosis = examine(HEALTHY[name])
    assert diagnosis.problems == ()
    assert not diagnosis.changes
    assert examination.short(diagnosis) == []


def test_the_built_in_corpus_is_clean() -> None:
    corpus = corpora.open_corpus("dates")
    assert corpus.valid is not None
    assert corpus.test is not None
    diagnosis = examination.examine(RawPairs(corpus.valid), RawPairs(corpus.test))
    assert diagnosis.findings == ()


def planted(row: int, source: str, target: str, count: int = 300) -> list[tuple[str, str]]:
    pairs = sentences(count)
    pairs[row] = source, target
    return pairs


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        ("empty", "text", ""),
        ("empty", "\u200b", "글자"),
        ("empty", "word", "\u200e\u00ad \u2060\u200f"),
        ("lost", "w\ufffdrd and more", "낱말"),
        ("mojibake", "cafÃ© and more", "카페"),
        ("mojibake", "cafe", "ì•ˆë…•í•˜ì„¸ìš”"),
        ("breaks", "one\u2028two", "하나"),
        ("breaks", "one", "하나\x85둘"),
        ("controls", "bell\x07", "종"),
        ("swapped", "안녕하세요", "good morning"),
        ("swapped", "GNOME을 시작합니다", "start GNOME"),
        ("script", "Что это такое", "무엇입니까"),
        ("script", "what is this here", "これは日本語です"),
        ("copies", "this is not translated", "this is not translated"),
        ("ratio", "short", "아주 긴 글 " * 40),
        ("ratio", "a long text in words " * 20, "짧은"),
        ("same word", "GNOME", "GNOME"),
    ],
)
def test_what_is_planted_is_found(name: str, source: str, target: str) -> None:
    diagnosis = examine(planted(123, source, target))
    assert list(found(diagnosis)) == [name]
    finding = found(diagnosis)[name]
    assert (finding.count, finding.rows) == (1, (123,))
    assert finding.examples[0].source.startswith(source[:20])
    assert (REASONS[diagnosis.reasons[123]] == name) == (finding.action == "dropped")
    assert np.flatnonzero(diagnosis.reasons).tolist() == ([123] if finding.action == "dropped" else [])
    repaired = diagnosis.mended | diagnosis.swapped
    assert np.flatnonzero(repaired).tolist() == ([123] if finding.action == "repaired" else [])


def test_sides_exchanged_within_one_script(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [(" ".join(DICE.choices(LATIN[:50], k=8)), " ".join(DICE.choices(GERMAN[:50], k=8))) for _ in range(600)]
    for row in (3, 300, 599):
        few[row] = few[row][::-1]
    diagnosis = examine(few)
    assert found(diagnosis)["swapped"].rows == (3, 300, 599)
    assert np.flatnonzero(diagnosis.swapped).tolist() == [3, 300, 599]
    monkeypatch.setattr(examination, "BLOCK", 100)  # the first blocks teach, the others are judged as they come
    monkeypatch.setattr(examination, "LEARN", 2)
    assert found(examine(few))["swapped"].rows == (3, 300, 599)


COMMON = [(" ".join(DICE.choices(LATIN[:50], k=8)), " ".join(DICE.choices(GERMAN[:50], k=8))) for _ in range(4000)]
LONGER = [(f"{source} {source} {source} {source} {source}", target) for source, target in sentences(1000)]


@pytest.mark.parametrize("back", [100, 450, 1000], ids=["a run", "a third", "half"])
@pytest.mark.parametrize("pairs", [COMMON[:1000], sentences(1000), LONGER], ids=["words", "scripts", "lengths"])
def test_both_directions_are_no_accident(
    pairs: list[tuple[str, str]], back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "BLOCK", 200)
    both = [*pairs, *(pair[::-1] for pair in pairs[:back])]
    diagnosis = examine(both)
    assert diagnosis.problems == ()
    assert not diagnosis.changes
    note = found(diagnosis)["directions"]
    assert (note.rows[0], note.action) == (1000, "kept")
    assert 0.95 * back < note.count <= back


def test_directions_in_turn_are_no_accident() -> None:
    assert not examine([each for pair in COMMON[:500] for each in (pair, pair[::-1])]).changes
    diagnosis = examine([each for pair in sentences(500) for each in (pair, pair[::-1])])
    assert not diagnosis.changes
    assert found(diagnosis)["directions"].count == 500


def test_sparse_is_neither_many_nor_close_together() -> None:
    rows = np.zeros(1000, np.bool_)
    assert examination.are_sparse(rows)
    rows[500:533] = rows[600:633] = True
    assert examination.are_sparse(rows)
    rows[599] = True
    assert not examination.are_sparse(rows)
    rows[:] = np.arange(1000) % 5 == 0
    assert examination.are_sparse(rows)
    rows[1] = True
    assert not examination.are_sparse(rows)
    assert examination.are_sparse(rows[:0])


def test_sparse_accidents_are_found_however_many_pairs_there_are() -> None:
    pairs = list(COMMON)
    turned = sorted(DICE.sample(range(4000), 240))
    for row in turned:
        pairs[row] = pairs[row][::-1]
    diagnosis = examine(pairs)
    assert np.flatnonzero(diagnosis.swapped).tolist() == turned


def test_a_text_far_longer_than_the_others() -> None:
    diagnosis = examine(planted(7, "word " * 600, "낱말 " * 500))
    assert found(diagnosis)["long"].rows == (7,)


def test_all_but_the_first_of_the_same_pairs_go() -> None:
    pairs = sentences(300)
    pairs[50] = pairs[200] = pairs[299] = pairs[3]
    diagnosis = examine(pairs)
    assert np.flatnonzero(diagnosis.reasons).tolist() == [50, 200, 299]
    assert found(diagnosis)["duplicates"].rows == (50, 200, 299)


def test_near_duplicates_and_further_targets_are_kept() -> None:
    pairs = sentences(300)
    source, target = pairs[3]
    pairs[10] = source.upper() + "!", target + "."
    pairs[20] = source, "다른 글"
    diagnosis = examine(pairs)
    assert found(diagnosis)["near duplicates"].rows == (10,)
    assert found(diagnosis)["targets"].rows == (20,)
    assert not diagnosis.changes
    assert diagnosis.problems == ()


def test_copies_are_answers_where_the_sides_are_alike() -> None:
    """Spelling and normalisation: most words stay as they are."""
    pairs = [
        (source, source if n % 3 else source.replace(" ", " very ", 1)) for n, (source, _) in enumerate(sentences(400))
    ]
    diagnosis = examine(pairs)
    assert found(diagnosis)["copies"].action == "kept"
    assert diagnosis.problems == ()
    assert diagnosis.kept == 400


def test_sides_out_of_step() -> None:
    pairs = sentences(2000)
    sources, targets = map(list, zip(*pairs, strict=True))
    targets.insert(700, "낱말 " * 8)
    diagnosis = examine(zip(sources, targets[:-1], strict=True))
    finding = found(diagnosis)["shift"]
    assert finding.severity == "error"
    assert abs(finding.rows[0] - 700) <= 10
    assert "1 line further down" in finding.what
    assert f"from pair {finding.rows[0] + 1:,} on" in " ".join(examination.short(diagnosis))


@pytest.mark.parametrize("first", [("source", "target"), ("English", "Korean"), ("Q", "A")])
def test_a_header_read_as_a_pair(first: tuple[str, str]) -> None:
    diagnosis = examine([first, *sentences(100)])
    assert found(diagnosis)["header"].rows == (0,)
    assert "order" not in found(diagnosis)


@pytest.mark.parametrize("first", [("target", "source"), ("Korean", "English")])
def test_columns_in_the_wrong_order(first: tuple[str, str]) -> None:
    diagnosis = examine([first, *sentences(100)])
    assert {"header", "order"} <= found(diagnosis).keys()


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([(str(n), source) for n, (source, _) in enumerate(sentences(300), 5)], "the source counts up by one"),
        ([(source, "ko") for source, _ in sentences(300)], "the target is always 'ko'"),
        ([(source, str(n % 3)) for n, (source, _) in enumerate(sentences(300))], "only 3 different numbers"),
    ],
)
def test_a_column_that_is_no_text(pairs: list[tuple[str, str]], words: str) -> None:
    finding = found(examine(pairs))["column"]
    assert words in finding.what
    assert finding.severity == "warning"


def test_overlap_with_a_test_set() -> None:
    pairs = sentences(300)
    test = [pairs[5], (pairs[6][0], "다른 글"), (pairs[7][0].upper() + " !", "또 다른 글"), *sentences(97, GERMAN)]
    diagnosis = examine(pairs, test)
    exact, near = found(diagnosis)["overlap"], found(diagnosis)["near overlap"]
    assert (exact.rows, near.rows) == ((5, 6), (7,))
    assert "2 of the 100 sources of that set are in this corpus, so that" in exact.what
    assert (exact.severity, near.severity) == ("error", "warning")
    assert np.flatnonzero(diagnosis.reasons).tolist() == [5, 6, 7]
    assert examine(pairs, []).findings == ()


def test_findings_are_the_same_however_the_rows_fall_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = planted(123, "Что это такое", "무엇입니까")
    pairs[200] = pairs[3]
    whole = examine(pairs)
    monkeypatch.setattr(examination, "BLOCK", 7)
    pieces = examine(pairs)
    assert pieces.findings == whole.findings
    assert pieces.reasons.tolist() == whole.reasons.tolist()


def test_blocks_of_long_texts_hold_fewer_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []

    def noting(texts: list[str], *more: Any) -> Any:
        sizes.append((len(texts) // 2, sum(map(len, texts))))
        return at_once(texts, *more)

    at_once = examination._measure
    monkeypatch.setattr(examination, "_measure", noting)
    pairs = [("word " * 5000, "낱말 " * 5000)] * 100 + sentences(3000)
    seen = examination.Examination()
    for source, target in pairs:
        seen.add(source, target)
        assert sum(map(len, seen._texts)) < examination.CHARACTERS
    whole = seen.diagnose()
    assert whole.rows == sum(count for count, _ in sizes) == 3100
    assert max(count for count, _ in sizes) == examination.BLOCK
    assert max(size for _, size in sizes) < examination.CHARACTERS + 50_000

    sizes.clear()
    texts = [text for pair in pairs for text in pair]
    rows, mended = examination.measure(texts, range(3100))  # by who makes blocks of any size
    assert max(size for _, size in sizes) < examination.CHARACTERS + 50_000
    assert mended == texts
    assert rows["near_pair"].tolist() == seen.column("near_pair").tolist()
    assert all(len(values) < 50 for values in seen._values)


def some_blocks(pairs: list[tuple[str, str]], size: int, every: int) -> examination.Examination:
    """Examine one block of `size` pairs in `every`."""
    seen = examination.Examination(every)
    for start in range(0, len(pairs), size * every):
        seen.skip_to(start)
        for source, target in pairs[start : start + size]:
            seen.add(source, target)
    return seen


def test_places_are_told_where_blocks_are_of_many_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "BLOCK", 50)
    monkeypatch.setattr(examination, "LEARN", 2)
    monkeypatch.setattr(examination, "CHARACTERS", 2000)
    sources, targets = map(list, zip(*sentences(4000), strict=True))
    targets.insert(2430, "낱말 " * 8)
    seen = some_blocks(list(zip(sources, targets[:-1], strict=True)), 60, 4)
    assert abs(found(seen.diagnose())["shift"].rows[0] - 2430) < 300


def test_of_many_pairs_some_blocks_are_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "BLOCK", 50)
    monkeypatch.setattr(examination, "LEARN", 2)
    pairs = sentences(2020)
    sources, targets = map(list, zip(*pairs, strict=True))
    targets.insert(1230, "낱말 " * 8)
    seen, other = some_blocks(list(zip(sources, targets[:-1], strict=True)), 50, 4), examination.Examination()
    for source, target in [pairs[0], pairs[210], pairs[60]]:  # 60 stands in a block that is not added
        other.add(source, target)
    diagnosis = seen.diagnose(other)
    assert diagnosis.rows == 10 * 50 + 20  # the blocks 0, 4, ..., 40, of which the last is not full
    assert found(diagnosis)["overlap"].what.startswith(
        "source is also in the validation set: at least 2 of the 3 sources of that set are in the training pairs"
    )
    assert found(diagnosis)["overlap"].severity == "error"
    assert 1000 < found(diagnosis)["shift"].rows[0] < 1450


def test_no_pairs_at_all() -> None:
    diagnosis = examine([])
    assert [finding.what for finding in diagnosis.findings] == ["no usable pair"]
    assert (diagnosis.rows, diagnosis.kept) == (0, 0)


def test_the_worst_comes_first_and_six_lines_are_enough() -> None:
    pairs = sentences(500)
    bad = [
        ("x\x07", "종"),
        ("a\u2028b", "둘"),
        ("cafÃ© x", "셋"),
        ("w\ufffdrd", "넷"),
        ("안녕", "hi"),
        ("", "빈"),
        ("Что это такое", "a"),
    ]
    for number, pair in enumerate(bad * 6):
        pairs[number] = pair
    pairs[400:480] = [pairs[399]] * 80
    diagnosis = examine(pairs, [pairs[499]])
    severities = [finding.severity for finding in diagnosis.findings]
    assert severities == sorted(severities, key=("error", "warning", "note").index)
    assert len(diagnosis.problems) > 6
    assert len(examination.short(diagnosis)) == 6


def test_equal_hashes_are_found_among_the_chosen_only() -> None:
    hashes = np.array([1, 2, 1, 1 << 63, 2, 1 << 63, 1], np.uint64)
    among = np.array([False, True, True, True, True, True, True])
    assert np.flatnonzero(examination.repeated(hashes, among)).tolist() == [4, 5, 6]


@given(st.lists(st.sampled_from("abcdef"), max_size=40))
def test_repeated_is_what_a_set_says(letters: list[str]) -> None:
    seen: set[str] = set()
    expected = [letter in seen or bool(seen.add(letter)) for letter in letters]
    hashes = np.array([hash(letter) for letter in letters], np.int64).view(np.uint64)
    assert examination.repeated(hashes, np.ones(len(letters), np.bool_)).tolist() == expected


ANY_TEXT = st.text(max_size=12) | st.sampled_from(["cafÃ©", "안녕", "hello there", "w\ufffd", "a\u2028b", "\x00", "1"])


@given(pairs=st.lists(st.tuples(ANY_TEXT, ANY_TEXT), max_size=60))
def test_nothing_is_an_error_and_a_clean_copy_can_be_read(
    pairs: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = RawPairs([Pair(source, target, "") for source, target in pairs])
    diagnosis = examination.examine(rows)
    folder = tmp_path_factory.mktemp("any")
    written = cleaning.write(rows, diagnosis, folder / "clean.tsv")
    assert written.kept + written.dropped == len(pairs)
    read = Pairs(folder / "clean.tsv")
    assert len(list(read)) == written.kept
    assert read.dropped == 0
    again = examination.examine(RawPairs(read))
    repairs_and_losses = {"lost", "breaks", "controls", "empty", "columns", "encoding"}
    assert not repairs_and_losses & found(again).keys()


def test_every_kind_tells_what_and_what_to_do() -> None:
    for kind in KINDS.values():
        assert kind.what
        assert kind.advice.endswith(".")
    assert len(REASONS) < 256
