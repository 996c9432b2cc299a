"""Sources that the live page offers as examples."""

from seq2see.text.pair import Pair, usual_sources


def pairs(*sources: str) -> list[Pair]:
    return [Pair(source, "x", "here") for source in sources]


def test_examples_are_of_usual_length_and_always_the_same():
    given = pairs(*("a" * length for length in range(1, 41)))
    found = usual_sources(given)
    assert len(found) == 4
    assert all(10 < len(text) < 32 for text in found)
    assert found == usual_sources(given[::-1])


def test_long_and_unprintable_texts_are_no_examples():
    assert usual_sources(pairs("x" * 81, "a\nb", "a\x1b[2Jb", " good ")) == ["good"]
    assert usual_sources([]) == []
