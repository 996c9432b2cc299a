"""LibreTranslate's routes at the root, as its clients use them: JSON or form bodies, `q` a text or a list of texts.

Which run translates is decided by the languages. A run that has none recorded takes any; it is listed as `und`, the
code of languages that are not known.
"""

import html
import json
import re
from collections.abc import Sequence
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seq2see.data.languages import matches
from seq2see.run import Run
from seq2see.serve.limits import RefusedError
from seq2see.serve.service import Service, in_words

Fields = TypeVar("Fields", bound=BaseModel)
UNKNOWN = "und"
MOST_FIELDS = 1000
"""Of a form."""
_TAG = re.compile(r"(<[^<>]*>)")


class Asked(BaseModel):
    """A text or several, and from which language to which."""

    model_config = ConfigDict(allow_inf_nan=False)

    q: str | list[str] = Field(description="A text, or a list of them. Each line of a text is translated by itself.")
    source: str = Field("auto", max_length=40, description="Its language; `auto`: found out.")
    target: str = Field(UNKNOWN, max_length=40, description="The language to translate to.")
    format: Literal["text", "html"] = Field("text", description="`html`: what stands between tags is translated.")
    alternatives: int = Field(0, ge=0, le=100, description="So many other translations besides.")
    api_key: str | None = Field(None, max_length=1000)


class Detectable(BaseModel):
    """A text."""

    q: str
    api_key: str | None = Field(None, max_length=1000)


class Detected(BaseModel):
    """A language, and how sure it is: 0 to 100."""

    confidence: float
    language: str


class Language(BaseModel):
    """One that can be translated from, and to which others."""

    code: str
    name: str
    targets: list[str]


class Answer(BaseModel):
    """A translation, or a list of them where `q` was a list; the others too, then."""

    translatedText: str | list[str]
    detectedLanguage: Detected | list[Detected] | None = None
    alternatives: list[str] | list[list[str]] | None = None


def routes(service: Service) -> APIRouter:
    """Those that LibreTranslate has, as far as a run can answer them."""
    found = APIRouter(tags=["LibreTranslate"])
    directions: dict[str, dict[str, None]] = {}
    for run in service.runs.values():
        directions.setdefault(_source(run), {}).update(dict.fromkeys(_targets(run)))
    # Targets have names, too, in the lists that people choose from.
    known = {code: list(targets) for code, targets in directions.items()}
    known |= {code: [code] for targets in directions.values() for code in targets if code not in known}
    listed = [Language(code=code, name=_name(code), targets=targets) for code, targets in known.items()]

    @found.get("/languages")
    async def languages() -> list[Language]:
        """What is translated to what."""
        return listed

    @found.post("/detect", openapi_extra=_described(Detectable))
    async def detect(request: Request) -> list[Detected]:
        """Which of the languages a text may be in, likeliest first, by the letters and words that runs know."""
        asked = _parsed(Detectable, await _fields(request))
        service.admit(request.headers, request.client, asked.api_key)
        shares: dict[str, float] = {}
        for name, share in (await service.familiar(asked.q)).items():
            code = _source(service.runs[name])
            shares[code] = max(share, shares.get(code, 0.0))
        order = sorted(shares, key=lambda code: -shares[code])
        return [Detected(confidence=_percent(shares[code]), language=code) for code in order]

    @found.post("/translate", openapi_extra=_described(Asked), response_model_exclude_none=True)
    async def translate(request: Request) -> Answer:
        """Translate a text, or a list of them."""
        asked = _parsed(Asked, await _fields(request))
        service.admit(request.headers, request.client, asked.api_key)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        service.check_texts(texts)
        name, to = _chosen(service, asked.source, asked.target)
        pieces = [_cut(text, asked.format) for text in texts]
        lines = [line for text in pieces for line, is_text in text if is_text]
        n_best = asked.alternatives + 1
        results: list[dict[str, Any]] = []
        if lines:
            service.check_texts(lines)
            _, _, results = await service.translate(lines, name, to, n_best=n_best, familiar=True)
        rest = iter(results)
        joined, detected = [], []
        for text in pieces:
            found = [next(rest) if is_text else None for _, is_text in text]
            joined.append(_joined(text, found, n_best, asked.format))
            known = [each["familiar"] for each in found if each is not None]
            share = sum(known) / len(known) if known else 0.0
            detected.append(Detected(confidence=_percent(share), language=_source(service.runs[name])))
        first, others = [each[0] for each in joined], [each[1:] for each in joined]
        alone = isinstance(asked.q, str)
        answer = Answer(translatedText=first[0] if alone else first)
        if asked.source == "auto":
            answer.detectedLanguage = detected[0] if alone else detected
        if asked.alternatives:
            answer.alternatives = others[0] if alone else others
        return answer

    return found


def _described(body: type[BaseModel]) -> dict[str, Any]:
    """The body in the OpenAPI description, which cannot see what we read by ourselves."""
    schema = body.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    content = {kind: {"schema": schema} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


async def _fields(request: Request) -> Any:
    """The body as fields, whichever way it was sent."""
    body = await request.body()
    sent_as = request.headers.get("content-type", "")
    match sent_as.partition(";")[0].strip().lower():
        case "application/x-www-form-urlencoded" | "multipart/form-data" as kind:
            try:
                form = _multipart(body, sent_as) if kind.startswith("multipart") else _urlencoded(body)
            except ValueError:
                raise RefusedError(400, "the body is not a form in UTF-8") from None
            fields: dict[str, Any] = {name: values[-1] for name, values in form.items()}
            if len(form.get("q", [])) > 1:
                fields["q"] = form["q"]
            if re.fullmatch("[0-9]{1,9}", fields.get("alternatives", "")):
                fields["alternatives"] = int(fields["alternatives"])
            return fields
        case "application/json" | "":
            try:
                return json.loads(body)
            except (ValueError, RecursionError):
                raise RefusedError(400, "the body is not JSON") from None
    raise RefusedError(415, "Content-Type: expected application/json, or one of a form")


def _urlencoded(body: bytes) -> dict[str, list[str]]:
    return parse_qs(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)


def _multipart(body: bytes, sent_as: str) -> dict[str, list[str]]:
    """As a browser sends a form. Not by the email package: that reads line by line, and everybody waits for it."""
    boundary = re.search(r'boundary="?([^";,]{1,70})', sent_as)
    if boundary is None:
        raise ValueError("a multipart body without a boundary")
    form: dict[str, list[str]] = {}
    _, *parts = body.split(b"--" + boundary[1].encode(), MOST_FIELDS)
    for part in parts:
        head, _, content = part.partition(b"\r\n\r\n")
        if name := re.search(rb'name="([^"]*)"', head):
            form.setdefault(name[1].decode(), []).append(content.removesuffix(b"\r\n").decode())
    return form


def _parsed(kind: type[Fields], fields: Any) -> Fields:
    try:
        return kind.model_validate(fields, strict=True)
    except ValidationError as problem:
        raise RefusedError(400, in_words(problem.errors(include_input=False, include_url=False))) from None


def _source(run: Run) -> str:
    return run.languages.source or UNKNOWN


def _targets(run: Run) -> list[str]:
    return run.tags or [run.languages.target or UNKNOWN]


def _chosen(service: Service, source: str, target: str) -> tuple[str, str | None]:
    """The run that translates so, and its tag where it needs one. What a run does not know of itself fits all."""
    for name, run in service.runs.items():
        if source != "auto" and not _fits(source, _source(run)):
            continue
        for code in _targets(run):
            if _fits(target, code):
                return name, code if run.tags else None
    known = "; ".join(f"{_source(run)} to {', '.join(_targets(run))}" for run in service.runs.values())
    raise RefusedError(400, f"nothing here translates from {source!a} to {target!a}. There is: {known}")


def _fits(wanted: str, found: str) -> bool:
    return UNKNOWN in (wanted, found) or matches(wanted, found) or matches(found, wanted)


def _name(code: str) -> str:
    from babel import Locale, UnknownLocaleError

    if code == UNKNOWN:
        return "Unknown"
    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def _percent(share: float) -> float:
    return round(100 * share, 1)


def _cut(text: str, format: str) -> list[tuple[str, bool]]:
    """A text in pieces: lines, tags and the blanks around; and whether each is to be translated."""
    found: list[tuple[str, bool]] = []
    for number, part in enumerate(_TAG.split(text) if format == "html" else [text]):
        if number % 2:
            found.append((part, False))
            continue
        for piece in re.split(r"(\s*\n\s*|^\s+|\s+$)", part):
            said = html.unescape(piece) if format == "html" else piece
            if piece:
                found.append((said if piece.strip() else piece, bool(piece.strip())))
    return found


def _joined(
    pieces: Sequence[tuple[str, bool]], results: Sequence[dict[str, Any] | None], n_best: int, format: str
) -> list[str]:
    """The n best of the whole, each from the n best of its pieces."""
    texts = []
    for place in range(n_best):
        said = []
        for (piece, _), result in zip(pieces, results, strict=True):
            if result is None:
                said.append(piece)
                continue
            translations = result["translations"]
            text = translations[min(place, len(translations) - 1)]["text"]
            said.append(html.escape(text, quote=False) if format == "html" else text)
        texts.append("".join(said))
    return texts
