"""The bodies of requests: what is accepted, and what is refused before it reaches a queue."""

import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
from pydantic import ValidationError

from seq2see.serve.bodies import ChatRequest, HeadReference, LookRequest, TranslateRequest


def test_one_text_or_several() -> None:
    assert TranslateRequest(text="a").text == "a"
    assert TranslateRequest(text=["a", "b"]).text == ["a", "b"]


@pytest.mark.parametrize("body", [{}, {"text": 3}, {"text": "a", "beam": 0}, {"text": "a", "unknown": 1}])
def test_what_is_refused(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TranslateRequest.model_validate(body)


def test_numbers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValidationError):
        ChatRequest.model_validate({"text": "a", "temperature": float("nan")})


def test_a_head_is_counted_from_zero() -> None:
    with pytest.raises(ValidationError):
        HeadReference.model_validate({"kind": "encoder", "layer": -1, "head": 0})
    assert LookRequest(text="a").text == "a"
