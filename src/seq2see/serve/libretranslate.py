"""LibreTranslate's routes at the root, as its clients use them: JSON or form bodies, `q` a text or a list of texts.

Which run translates is decided by the languages. A run that has none recorded takes any; it is listed as `und`, the
code of languages that are not known.
"""

import html
import json
import math
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seq2see.run import Run
from seq2see.serve.jobs import Asked
from seq2see.serve.limits import RefusedError
from seq2see.serve.service import Service, in_words
from seq2see.text.languages import matches
from seq2see.text.words import Term

Fields = TypeVar("Fields", bound=BaseModel)
UNKNOWN = "und"
MOST_FIELDS = 1000
"""Maximum number of fields of a form."""
Pieces = list[tuple[str, bool]]
"""Parts of a text in order, and whether each is to be translated."""
Way = tuple[str, str | None]
"""Name of a run, and the language tag where it needs one."""
FindTerms = Callable[[Sequence[str]], Awaitable[list[list[Term]]]]
"""Function that returns the terms of a glossary in each line."""
Split = Literal["nowhere", "sentences", "lines"]
"""Where a text is cut: nowhere, where a sentence ends if it is long, or besides at each line break."""
_UNSAID = re.compile(
    r"(<!--.*?(?:-->|\Z)|<script\b.*?(?:</script\s*>|\Z)|<style\b.*?(?:</style\s*>|\Z)|<[^<>]*>)",
    re.DOTALL | re.IGNORECASE,
)
"""Parts of a page that are not translated: comments, scripts and styles whole, and all tags."""
_SENTENCE_END = re.compile(
    r"""((?<=[.!?…؟۔।])\s+|(?<=[.!?…؟۔।]["')\]»”’])\s+|(?<=[。！？｡])\s*(?![。！？｡」』）”’]))"""
)
_NEEDS_NO_BLANK = ("。", "！", "？", "｡", "」", "』", "）")


class LibreTranslateRequest(BaseModel):
    """A text or several, and from which language to which."""

    model_config = ConfigDict(allow_inf_nan=False)

    q: str | list[str] = Field(description="A text, or a list of them. Each line of a text is translated by itself.")
    source: str = Field("auto", max_length=40, description="Its language; `auto`: found out.")
    target: str = Field(UNKNOWN, max_length=40, description="The language to translate to.")
    model: str | None = Field(
        None, max_length=200, description="The run, where languages do not tell; not in LibreTranslate."
    )
    format: Literal["text", "html"] = Field("text", description="`html`: what stands between tags is translated.")
    alternatives: int = Field(0, ge=0, le=100, description="So many other translations besides.")
    api_key: str | None = Field(None, max_length=1000)


class DetectRequest(BaseModel):
    """A text whose language is to be detected."""

    q: str
    api_key: str | None = Field(None, max_length=1000)


class DetectedLanguage(BaseModel):
    """A language, and the confidence that the text is in it: 0 to 100."""

    confidence: float
    language: str


class SupportedLanguage(BaseModel):
    """A source language, and the languages that it can be translated to."""

    code: str
    name: str
    targets: list[str]


class LibreTranslateResponse(BaseModel):
    """A translation; where `q` was a list, every field is a list with one entry for each text."""

    translatedText: str | list[str]
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None
    alternatives: list[str] | list[list[str]] | None = None


class Wanted(NamedTuple):
    """The languages of texts, the run where languages do not tell, their format, and the number of translations."""

    source: str
    target: str
    model: str | None = None
    format: str = "text"
    n_best: int = 1
    split: Split = "lines"
    find_terms: FindTerms | None = None
    """Finds the terms of a glossary, which must be translated as it says."""


class TextTranslation(NamedTuple):
    """The translations of a text, best first, its language, and the share of it that the model knows."""

    texts: list[str]
    source: str
    familiar: float


def routes(service: Service) -> APIRouter:
    """Return the routes of LibreTranslate that runs can answer."""
    found = APIRouter(tags=["LibreTranslate"])
    directions: dict[str, dict[str, None]] = {}
    for run in service.runs.values():
        directions.setdefault(source_language(run), {}).update(dict.fromkeys(target_languages(run)))
    # Targets have names, too, in the lists that people choose from.
    known = {code: list(targets) for code, targets in directions.items()}
    known |= {code: [code] for targets in directions.values() for code in targets if code not in known}
    listed = [
        SupportedLanguage(code=code, name=language_name(code), targets=targets) for code, targets in known.items()
    ]

    @found.get("/languages")
    async def languages() -> list[SupportedLanguage]:
        """List the languages and the languages that each can be translated to."""
        return listed

    @found.post("/detect", openapi_extra=described(DetectRequest))
    async def detect(request: Request) -> list[DetectedLanguage]:
        """Return the languages that a text may be in, most probable first, by the letters and words known to the
        models."""
        asked, client = await _admitted(service, request, DetectRequest)
        shares: dict[str, float] = {}
        (known,) = await service.familiar([asked.q], client)
        for name, share in known.items():
            code = source_language(service.runs[name])
            shares[code] = max(share, shares.get(code, 0.0))
        order = sorted(shares, key=lambda code: -shares[code])
        return [DetectedLanguage(confidence=_percent(shares[code]), language=code) for code in order]

    @found.post("/translate", openapi_extra=described(LibreTranslateRequest), response_model_exclude_none=True)
    async def translate(request: Request) -> LibreTranslateResponse:
        """Translate a text, or a list of them."""
        asked, client = await _admitted(service, request, LibreTranslateRequest)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        wanted = Wanted(asked.source, asked.target, asked.model, asked.format, asked.alternatives + 1)
        found = await translate_texts(service, texts, wanted, client)
        first, others = [each.texts[0] for each in found], [each.texts[1:] for each in found]
        detected = [DetectedLanguage(confidence=_percent(each.familiar), language=each.source) for each in found]
        alone = isinstance(asked.q, str)
        answer = LibreTranslateResponse(translatedText=first[0] if alone else first)
        if asked.source == "auto":
            answer.detectedLanguage = detected[0] if alone else detected
        if asked.alternatives:
            answer.alternatives = others[0] if alone else others
        return answer

    return found


async def translate_texts(service: Service, texts: Sequence[str], wanted: Wanted, client: str) -> list[TextTranslation]:
    """Translate whole texts: each is cut into lines and sentences, whose translations are joined again."""
    service.check_texts(texts)
    pieces = [cut(text, wanted.format, by_lines=wanted.split == "lines") for text in texts]
    ways = await _ways(service, wanted, pieces, client)
    if wanted.split != "nowhere":
        pieces = [in_sentences(text, _room(service, name)) for text, (name, _) in zip(pieces, ways, strict=True)]
    results = await _translated(service, pieces, ways, wanted, client)
    translations = []
    for text, found, (name, _) in zip(pieces, results, ways, strict=True):
        known = [each["familiar"] for each in found if each is not None]
        share = sum(known) / len(known) if known else 0.0
        said = joined(text, found, wanted.n_best, wanted.format)
        translations.append(TextTranslation(said, source_language(service.runs[name]), share))
    return translations


def described(body: type[BaseModel]) -> dict[str, Any]:
    """Describe a body for OpenAPI, which cannot see fields that a route reads by itself."""
    schema = body.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    content = {kind: {"schema": schema} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


async def _admitted(service: Service, request: Request, kind: type[Fields]) -> tuple[Fields, str]:
    """Return the fields of a request and its client. The API key is checked even if the fields are invalid, and a
    client without a valid key gets that error only."""
    key = None
    try:
        fields = await _fields(request)
        key = fields.get("api_key") if isinstance(fields, dict) else None
        asked = kind.model_validate(fields, strict=True)
    except ValidationError as problem:
        raise RefusedError(400, in_words(problem.errors(include_input=False, include_url=False))) from None
    finally:  # a refusal by `admit` takes the place of any other
        client = service.admit(request.client, dict(request.headers.raw), key if isinstance(key, str) else None)
    return asked, client


async def _fields(request: Request) -> Any:
    """Return the fields of body and query string; empty ones count as not sent, except `q`."""
    fields = await read_fields(request, ("q",))
    if not isinstance(fields, dict):
        return fields
    fields = {name: value for name, value in fields.items() if value is not None and (value != "" or name == "q")}
    number = fields.get("alternatives")
    if isinstance(number, str) and re.fullmatch("[0-9]{1,9}", number):
        fields["alternatives"] = int(number)
    return fields


async def read_fields(request: Request, lists: Collection[str]) -> Any:
    """Return the fields of a form or a JSON object, and of the query string.

    Args:
        lists: fields that a form may have several times.
    """
    body = await request.body()
    sent_as = request.headers.get("content-type", "")
    kind = sent_as.partition(";")[0].strip().lower()
    try:
        query = _last_values(_urlencoded(request.url.query), lists)
        match kind:
            case "application/x-www-form-urlencoded":
                return query | _last_values(_urlencoded(body.decode()), lists)
            case "multipart/form-data":
                return query | _last_values(parse_multipart(body, sent_as), lists)
    except ValueError:
        raise RefusedError(400, "the body or the query is not a form in UTF-8") from None
    if kind not in ("application/json", ""):
        raise RefusedError(415, "Content-Type: expected application/json, or that of an HTML form")
    if not body and (query or request.method == "GET"):
        return query
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise RefusedError(400, "the body is not JSON") from None
    return query | fields if isinstance(fields, dict) else fields


def _last_values(form: dict[str, list[str]], lists: Collection[str]) -> dict[str, Any]:
    """Return the last value of each field, but all values of those that may be lists."""
    return {name: values if name in lists and len(values) > 1 else values[-1] for name, values in form.items()}


def _urlencoded(text: str) -> dict[str, list[str]]:
    return parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)


def parse_multipart(body: bytes, sent_as: str) -> dict[str, list[str]]:
    """Parse a form as a browser sends it; the email package reads line by line, for which the event loop would wait."""
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


def source_language(run: Run) -> str:
    return run.languages.source or UNKNOWN


def target_languages(run: Run) -> list[str]:
    return run.tags or [run.languages.target or UNKNOWN]


def fitting_runs(runs: dict[str, Run], source: str, target: str) -> list[Way]:
    """Return the runs that fit best: those with these languages before those whose languages are not known."""
    found: dict[Way, int] = {}
    for name, run in runs.items():
        from_it = 1 if source == "auto" else _fit(source, source_language(run))
        code = max(target_languages(run), key=lambda code: _fit(target, code))
        if from_it and (to_it := _fit(target, code)):
            found[name, code if run.tags else None] = from_it + to_it
    if not found:
        known = "; ".join(f"{source_language(run)} to {', '.join(target_languages(run))}" for run in runs.values())
        raise RefusedError(400, f"no model translates from {source!a} to {target!a}. There is: {known}")
    return [way for way, fit in found.items() if fit == max(found.values())]


def _fit(wanted: str, found: str) -> int:
    """Return 2 for the same language, 1 where one of them is not known, and 0 for different languages."""
    if UNKNOWN in (wanted, found):
        return 1
    return 2 if matches(wanted, found) or matches(found, wanted) else 0


async def _ways(service: Service, wanted: Wanted, texts: Sequence[Pieces], client: str) -> list[Way]:
    """Return the run for each text; where several would do, the one that knows it best."""
    runs = service.runs if wanted.model is None else dict([service.run(wanted.model)])
    fitting = fitting_runs(runs, wanted.source, wanted.target)
    if len(fitting) == 1:
        return [fitting[0]] * len(texts)
    spoken = [" ".join(piece for piece, is_text in text if is_text) for text in texts]
    tags = dict(fitting)
    best = [next(name for name in known if name in tags) for known in await service.familiar(spoken, client)]
    return [(name, tags[name]) for name in best]


async def _translated(
    service: Service, texts: Sequence[Pieces], ways: Sequence[Way], wanted: Wanted, client: str
) -> list[list[dict[str, Any] | None]]:
    """Return the result of each part of a text; None where there was nothing to translate."""
    results: list[list[dict[str, Any] | None]] = [[None] * len(text) for text in texts]
    at_once = service.limits.texts
    for name, to in dict.fromkeys(ways):
        places = [
            (number, place)
            for number, text in enumerate(texts)
            if ways[number] == (name, to)
            for place, (_, is_text) in enumerate(text)
            if is_text
        ]
        for some in (places[begin : begin + at_once] for begin in range(0, len(places), at_once)):
            lines = [texts[number][place][0] for number, place in some]
            terms = await wanted.find_terms(lines) if wanted.find_terms else ()
            asked = Asked(lines, to, wanted.n_best, familiar=True, terms=terms)
            _, _, found = await service.translate(asked, client, name)
            for (number, place), line, result in zip(some, lines, found, strict=True):
                if result["cut"]:
                    raise RefusedError(
                        413,
                        f"q: a sentence of {len(line):,} characters is longer than the model reads "
                        f"({_most_tokens(service.runs[name]):,} tokens). Send it in parts",
                    )
                results[number][place] = result
    return results


def language_name(code: str) -> str:
    from babel import Locale, UnknownLocaleError

    if code == UNKNOWN:
        return "Unknown"
    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (UnknownLocaleError, ValueError):
        return code


def _percent(share: float) -> float:
    return round(100 * share, 1)


def cut(text: str, format: str, by_lines: bool = True) -> Pieces:
    """Cut a text into lines, or flows of lines between tags, and what stands between them and is left as it is."""
    found: Pieces = []
    for number, part in enumerate(_UNSAID.split(text) if format == "html" else [text]):
        if number % 2:
            found.append((part, False))
            continue
        for piece in _lines(part, by_lines):
            said = _unescaped(piece) if format == "html" else piece
            said = said if by_lines else " ".join(said.split("\n"))
            found.append((said, True) if said.strip() else (piece, False))
    return found


def _unescaped(text: str) -> str:
    """Replace the escapes of HTML; character numbers may have any length, which Python's `int` would refuse."""
    return html.unescape(re.sub(r"&#0*([0-9]{1,8})[0-9]*", r"&#\1", text))


def _lines(text: str, by_lines: bool) -> Iterator[str]:
    """Yield lines, and the blanks around them, in linear time; a single expression would take quadratic time."""
    at = 0
    for blank in re.finditer(r"\s+", text):
        if ("\n" in blank[0] and by_lines) or blank.start() == 0 or blank.end() == len(text):
            yield from filter(None, (text[at : blank.start()], blank[0]))
            at = blank.end()
    if text[at:]:
        yield text[at:]


def _most_tokens(run: Run) -> int:
    return min(run.settings.decoding.max_source, run.settings.model.longest)


def _room(service: Service, name: str) -> float:
    """Return how many characters of a line are surely read: its tokens are only estimated here, hence the half."""
    facts = service.quick.facts.get(name)  # none while the engine is not loaded: the request will be refused
    return _most_tokens(service.runs[name]) / facts.tokens_for_character / 2 if facts else math.inf


def in_sentences(pieces: Pieces, room: float) -> Pieces:
    """Cut lines that may be longer than a model reads where sentences end."""
    found: Pieces = []
    for piece, is_text in pieces:
        if not is_text or len(piece) <= room:
            found.append((piece, is_text))
            continue
        parts = ((part, not number % 2) for number, part in enumerate(_SENTENCE_END.split(piece)))
        found += [(part, is_text) for part, is_text in parts if part]
    return found


def joined(pieces: Pieces, results: Sequence[dict[str, Any] | None], n_best: int, format: str) -> list[str]:
    """Return the n best translations of a whole text, each joined from those of its parts."""
    texts = []
    for place in range(n_best):
        said: list[str] = []
        was_text = False
        for (piece, is_text), result in zip(pieces, results, strict=True):
            if result is None:
                said.append(piece)
            else:
                translations = result["translations"]
                text = translations[min(place, len(translations) - 1)]["text"]
                if was_text and not said[-1].endswith(_NEEDS_NO_BLANK):  # as between sentences of Chinese
                    said.append(" ")
                said.append(html.escape(text, quote=False) if format == "html" else text)
            was_text = is_text
        texts.append("".join(said))
    return texts
