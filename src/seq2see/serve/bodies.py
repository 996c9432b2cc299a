"""Request and response bodies under `/v1`, from which the OpenAPI description is generated."""

from typing import Annotated, Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field

SECURITY_SCHEMES = {
    "Bearer": {"type": "http", "scheme": "bearer"},
    "X-API-Key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}
"""Headers in which an API key may be sent, for the OpenAPI description. They are not dependencies of the routes, which
FastAPI would resolve for each request: the service itself checks the key.
"""
WITHOUT_KEY = ("/health", "/ready", "/languages")
"""Paths of the routes that need no API key, for the OpenAPI description."""


class Described(FastAPI):
    """A FastAPI app whose OpenAPI description says which routes need an API key, if the service has keys."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI description, with the ways to send an API key."""
        document = super().openapi()
        document["components"]["securitySchemes"] = SECURITY_SCHEMES
        for path, operations in document["paths"].items():
            for operation in operations.values() if path not in WITHOUT_KEY else ():
                operation["security"] = [{name: []} for name in SECURITY_SCHEMES]
        return document


class RequestBody(BaseModel):
    """Base of all request bodies: an unknown field, or a number in quotes, is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class ModelRequest(RequestBody):
    """A request to one of the models."""

    model: str | None = Field(None, description="Name of a model in /v1/models; default: the first.")
    to: str | None = Field(None, description="Target language, if the model has several.")


class SearchRequest(ModelRequest):
    """Settings of the search for an answer, or of sampling if `sample` is true."""

    beam: int | None = Field(None, ge=1, description="Beam width: hypotheses kept at each step; 1: greedy search.")
    sample: bool = Field(False, description="Sample each token from its probabilities instead of searching.")
    temperature: float = Field(
        1.0, ge=0.01, le=100, description="Sampling temperature: below 1 less varied, above 1 more varied."
    )
    top_k: int = Field(0, ge=0, le=1_000_000, description="Sample from the k most probable tokens; 0: from all.")
    top_p: float = Field(1.0, ge=0.01, le=1, description="Sample from the top tokens with this total probability.")
    seed: int | None = Field(None, ge=0, lt=2**63, description="Random seed, for the same output each time.")
    stream: bool = Field(False, description="Send each token of one text as an event, by greedy search or sampling.")


MOST_TERMS = 1000
"""Maximum number of terms in the glossary of one request; a request with more is refused."""
SAMPLING = {"temperature", "top_k", "top_p", "seed"}
"""Fields of `SearchRequest` that control sampling."""


class TranslateRequest(SearchRequest):
    """Texts to translate, and options."""

    text: str | list[str] = Field(description="One text, or several. Each is translated as one line.")
    n_best: int = Field(1, ge=1, description="Number of translations of each text, best first.")
    prefix: str | None = Field(None, description="Every translation begins with this text.")
    alignments: bool = Field(False, description="Return the word and character alignment of each translation.")
    markup: Literal["auto", "plain", "html", "xml"] | None = Field(
        None, description="Translate each text as a document of this format; default: as one line."
    )
    glossary: dict[str, str | list[str]] | list[list[str]] = Field(
        default={},
        max_length=MOST_TERMS,
        description="Terms with the translations that they must have, `{term: translation}` or "
        "`[[term, translation, ...], ...]`; several are alternatives, and an empty one keeps the term as it is.",
    )


class ChatRequest(SearchRequest):
    """A line of a conversation."""

    text: str


class HeadReference(RequestBody):
    """An attention head; `layer` and `head` are counted from 0."""

    place: Literal["encoder", "decoder", "cross"]
    layer: int = Field(ge=0, le=1000)
    head: int = Field(ge=0, le=1000)


class LookRequest(ModelRequest):
    """Request for activations and explanations of one translation."""

    text: str
    target: str | None = Field(None, description="Explain this translation instead of the model's own.")
    parts: list[str] = Field(
        default=["summary"], max_length=500, description="Names of the parts to return; every response lists all names."
    )
    without: list[HeadReference] = Field(default=[], max_length=1000, description="Heads that are switched off.")
    prefix: list[Annotated[int, Field(ge=0, lt=2**31)]] = Field(
        default=[],
        max_length=128,
        description="Ids of tokens with which the translation must begin, as in `candidates`.",
    )


Positions = str | list[Annotated[int, Field(ge=0, lt=2**31)]] | None


class PatchRequest(ModelRequest):
    """Request for a translation in which some activations are replaced by those of another sentence."""

    text: str
    donor: str = Field(description="The sentence that the activations are taken from.")
    name: str = Field(
        "encoder_norm",
        max_length=200,
        description="Name of the activations to replace; `points` in the part `summary` of /v1/look lists names.",
    )
    tokens: Positions = Field(
        None,
        max_length=1000,
        description="Positions to change, from 0, or a part of the text that occurs in it once; all if not given. "
        "In the decoder they are positions of output tokens.",
    )
    donor_tokens: Positions = Field(
        None, max_length=1000, description="The same number of positions in the donor; default: those of `tokens`."
    )


class ContrastRequest(ModelRequest):
    """Request for reasons why the model prefers its translation to `that`, or its token at `position` to `token`."""

    text: str
    target: str | None = Field(None, description="Explain this translation instead of the model's own.")
    that: str | None = Field(None, description="The other translation; compared where the two first differ.")
    position: int | None = Field(None, ge=0, lt=2**31, description="Position of an output token, from 0.")
    token: int | None = Field(
        None, ge=0, lt=2**31, description="Id of another token at this position, as `candidates` of /v1/look has it."
    )


class AlignedSpans(BaseModel):
    """Aligned spans of text and translation, each as index of the first character and index after the last one."""

    source: tuple[int, int]
    target: tuple[int, int]


class TranslationAlignment(BaseModel):
    """Alignment of a translation with its source: of words in Pharaoh format (`0-2 1-1`), and of characters."""

    pharaoh: str
    links: list[AlignedSpans]


class TranslationConfidence(BaseModel):
    """Expected quality of a translation, calibrated on the validation set."""

    value: float = Field(
        description="From 0 to 1: the probability that the translation is exactly right, or its expected chrF / 100."
    )
    measures: Literal["exact", "chrf"]
    weak: bool = Field(
        description="Whether the translation is more likely wrong than right; for chrF, whether its `value` is as low "
        "as for the weakest tenth of the validation set."
    )


class TranslatedTerm(BaseModel):
    """A glossary term: where it is in text and translation (in characters), its form there, and `how` it got there."""

    source: tuple[int, int]
    text: str
    target: tuple[int, int] | None
    form: str
    how: Literal["search", "constraint", "n-best", "prefix", "replacement", "missing"]


class TranslationCandidate(BaseModel):
    """One translation of a text."""

    text: str
    score: float = Field(description="Log-probability divided by the length penalty.")
    probability: float | None
    confidence: TranslationConfidence | None = Field(None, description="Expected quality, if the run is calibrated.")
    alignment: TranslationAlignment | None = None
    terms: list[TranslatedTerm] | None = Field(None, description="Glossary terms that occur in the text.")


class TranslationResult(BaseModel):
    """The translations of one text."""

    translations: list[TranslationCandidate]
    counts: dict[str, int] | None = Field(
        None,
        description="With `markup`: how many sentences, tags and placeholders the text has, and how these were placed.",
    )
    source_tokens: int
    cut: bool = Field(description="Whether the text was longer than the model reads, and was truncated.")


class TranslateResponse(BaseModel):
    """The translations of all texts, in order."""

    model: str
    engine: str
    results: list[TranslationResult]


class ChatResponse(BaseModel):
    """The answer to a line, and a note: why there is no answer, or that the line was cut. Either may be empty."""

    model: str
    answer: str
    note: str


class LookResponse(BaseModel):
    """Activations and explanations of a translation: the requested parts by name, and the names of all parts."""

    names: list[str]
    parts: dict[str, Any]


class PatchResponse(BaseModel):
    """A translation before and after activations were changed."""

    source: str
    donor: str
    name: str
    tokens: list[int] = Field(description="Positions that were changed.")
    own_translation: str = Field(description="The translation without the change.")
    translation: str = Field(description="The translation with the change.")
    target_tokens: list[str] = Field(description="Tokens of `own_translation`, with the end token.")
    probability: list[float] = Field(description="Probability of each of `target_tokens` without the change.")
    changed_probability: list[float] = Field(description="Probability of each of `target_tokens` with the change.")
    effect: float = Field(description="How far the log-probability of `own_translation` falls, in nats.")


class ContrastedHead(BaseModel):
    """An attention head; `layer` and `head` are counted from 0."""

    place: Literal["encoder", "decoder", "cross"]
    layer: int
    head: int


class ContrastResponse(BaseModel):
    """What the preference for one output token depends on, in nats. Positive numbers favour the token `this`."""

    source_tokens: list[str]
    prefix: list[str] = Field(description="Output tokens that both translations have in common.")
    this: str
    that: str
    difference: float = Field(description="log p(this) - log p(that) after the prefix.")
    left_out: list[float] = Field(description="How far the difference falls without each source token.")
    layers: list[float] = Field(description="The difference as if each decoder layer were the last.")
    heads: list[tuple[ContrastedHead, float]] = Field(
        description="How far the difference falls without each head, the most important first."
    )


class ServedModel(BaseModel):
    """A run that is served."""

    name: str
    source: str | None = Field(description="Source language, if known.")
    targets: list[str] = Field(description="Target languages, if known.")
    choose: bool = Field(description="Whether a request must choose the target language with `to`.")
    engine: str | None
    parameters: int
    examples: list[str] = Field(description="A few short sources of its validation set, to try it with.")


class ModelsResponse(BaseModel):
    """All runs that are served; a request that names no model uses the first."""

    models: list[ServedModel]


class StatusResponse(BaseModel):
    """Status of the service."""

    status: str


class ErrorResponse(BaseModel):
    """Reason why a request was not answered, in one line; some errors have further fields, for programs."""

    error: str
    code: Literal["too_long"] | None = Field(
        None, description="`too_long`: a text or translation has more tokens than can be shown. Other errors have none."
    )
    tokens: int | None = Field(None, description="With `too_long`: the number of tokens of the text.")
    most: int | None = Field(None, description="With `too_long`: the maximum number of tokens.")


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorResponse, "description": "The request is invalid, or there are too many requests (429)."},
    "5XX": {
        "model": ErrorResponse,
        "description": "PyTorch is missing (501), the service is not ready (503), or the deadline has passed (504).",
    },
}
EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {"event": {"enum": ["token", "end", "error"]}, "data": {"type": "string", "description": "JSON."}},
}
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {"schema": EVENT}},
        "description": "Server-sent events, if `stream` is true.",
    }
}
