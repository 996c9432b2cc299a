"""Lines are tidied and judged before an answer is searched for, at a cost that does not depend on what is in them."""

from types import SimpleNamespace

import pytest

from seq2see import conversation
from seq2see.tokens import tokenizers

DISTINCT = "".join(map(chr, range(0x4E00, 0x4E00 + 5000)))
HIDDEN = "".join(map(chr, range(0xE000, 0xE000 + 5000)))


@pytest.mark.parametrize("text", [DISTINCT, HIDDEN], ids=["distinct", "hidden"])
def test_distinct_characters_take_a_few_calls_of_the_tokenizer(text, monkeypatch):
    """Each was looked up by itself, several times: 9,990 of them occupied an engine for 3.8 seconds."""
    source = tokenizers.train("bpe", ["a bad cab", "a fad"], 300)
    calls = []
    encode = source._encode
    monkeypatch.setattr(source, "_encode", lambda texts: calls.append(len(texts)) or encode(texts))
    run = SimpleNamespace(tokenizers=SimpleNamespace(source=source))
    line, note = conversation.hear(run, text, conversation.ENGLISH)
    assert (line, bool(note)) == ("", True)
    assert len(calls) <= 3


def test_what_training_has_not_shown_and_nobody_sees_is_left_out():
    source = tokenizers.train("characters", ["a bad\u200dcab"], 300)
    run = SimpleNamespace(tokenizers=SimpleNamespace(source=source))
    assert conversation.hear(run, " a\u200d  b\u200ba\ue000d ", conversation.ENGLISH) == ("a\u200d bad", "")
