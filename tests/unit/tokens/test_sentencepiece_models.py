"""SentencePiece models that bring tables of their own, or are none, are refused before SentencePiece reads them."""

import base64
import json
from pathlib import Path

import pytest
from sentencepiece import sentencepiece_model_pb2

from seq2see.errors import RunError
from seq2see.tokens import sentencepiece_models, tokenizers


@pytest.fixture(scope="module")
def model() -> bytes:
    made = tokenizers.train("bpe", ["the cat sat on the mat"] * 5, 300)
    assert isinstance(made, tokenizers.Subwords)
    return made.sentencepiece_model


def test_our_own_has_none(model: bytes) -> None:
    sentencepiece_models.refuse_tables(model)


@pytest.mark.parametrize("part", ["normalizer_spec", "denormalizer_spec"])
def test_a_table_is_refused(model: bytes, part: str, tmp_path: Path) -> None:
    parsed = sentencepiece_model_pb2.ModelProto()
    parsed.ParseFromString(model)
    getattr(parsed, part).precompiled_charsmap = b"\0" * 8
    state = {"version": 1, "kind": "bpe", "normalization": "identity"}
    path = tmp_path / "source.tokenizer.json"
    path.write_text(json.dumps(state | {"model": base64.b64encode(parsed.SerializeToString()).decode()}))
    with pytest.raises(RunError, match="it normalises text by a table"):
        tokenizers.load(path)


@pytest.mark.parametrize("content", [b"\x0a", b"\x0a\xff", b"\xff" * 20, b"\x0b", b"\x80"])
def test_what_is_no_protocol_buffer_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="not a SentencePiece model"):
        sentencepiece_models.refuse_tables(content)
