"""What a request costs is known before it is let in."""

from types import SimpleNamespace

import pytest

from seq2see.config import Decoding
from seq2see.serve import work
from seq2see.tokens import tokenizers

DECODING = Decoding()


def cost(tokens: int, beam: int = 5, **more: int) -> int:
    return work.cost(tokens, beam, 1.0, DECODING, 2048, **more)


def test_it_grows_with_length_and_beam():
    assert cost(100) > 4 * cost(10)
    assert cost(100, beam=10) > 1.5 * cost(100)
    assert cost(1) >= 1


def test_what_is_not_read_costs_nothing():
    assert cost(100_000) == cost(DECODING.max_source)


@pytest.mark.parametrize("tokens", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize("beam", [1, 10])
def test_an_output_that_runs_on_costs_at_most_four_times_the_estimate(tokens: int, beam: int):
    worst = work.cost(tokens, beam, 100.0, DECODING, 2048)
    assert worst <= 4 * cost(tokens, beam) + 4


def test_a_known_output_counts_in_full():
    assert cost(2, least_output=1000) > 5 * cost(2)


@pytest.mark.parametrize("kind", ["bpe", "characters", "jamo", "symbols", "pattern"])
def test_tokens_are_never_fewer_than_the_model_reads(kind):
    trained = tokenizers.train(kind, ["a bad cab"], 300, pattern="words" if kind == "pattern" else "")
    run = SimpleNamespace(tokenizers=SimpleNamespace(source=trained), tags=[])
    texts = ["", " bad cab ", "日本" * 50, "a" * 99]
    read = [len(ids) + 1 for ids in trained.encode([text.strip() for text in texts])]
    assert all(found >= tokens for found, tokens in zip(work.source_tokens(run, texts), read, strict=True))


def test_a_look_costs_more_than_a_translation_and_its_importance_grows_with_the_source():
    assert work.look_times(10, ["summary"]) > 1
    assert work.look_times(100, ["importance"]) > 5 * work.look_times(10, ["importance"]) / 2
    assert work.look_times(10_000, ["importance"]) < work.look_times(128, ["importance"])
