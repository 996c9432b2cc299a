"""LibreTranslate's routes at the root, as its clients use them: JSON or form bodies, `q` a text or a list of texts.

The languages of a request decide which run translates it; of several that fit, the one whose vocabulary covers most of
the text. A run without recorded languages accepts any; they are listed as `und`, the code of unknown languages.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seq2see.documents import document
from seq2see.documents.document import DocumentPlan, Joined, Options, Split, Translated
from seq2see.documents.markup import Elements
from seq2see.documents.segments import Span
from seq2see.run import Run
from seq2see.serve.jobs import Asked
from seq2see.serve.limits import RefusedError
from seq2see.serve.service import Service, in_words
from seq2see.text.languages import matches
from seq2see.text.words import Term

Fields = TypeVar("Fields", bound=BaseModel)
UNKNOWN = "und"
MOST_FIELDS = 1000
"""Maximum number of fields of a form; a form with more is refused."""
Way = tuple[str, str | None]
"""Name of the run that translates a text, and the target language whose tag is put before the text; None if the run
has no tags.
"""
FindTerms = Callable[[Sequence[str]], Awaitable[list[list[Term]]]]
"""Function that returns, for each line, the glossary terms that occur in it."""


class LibreTranslateRequest(BaseModel):
    """One or several texts, and their source and target language."""

    model_config = ConfigDict(allow_inf_nan=False)

    q: str | list[str] = Field(description="A text, or a list of them.")
    source: str = Field("auto", max_length=40, description="Language of the text; `auto`: detected.")
    target: str = Field(UNKNOWN, max_length=40, description="The language to translate to.")
    model: str | None = Field(
        None, max_length=200, description="Name of the run that translates; not part of LibreTranslate's API."
    )
    format: Literal["text", "html"] = Field("text", description="`html`: tags are placed around the translated words.")
    alternatives: int = Field(0, ge=0, le=100, description="Number of alternative translations.")
    api_key: str | None = Field(None, max_length=1000)


class DetectRequest(BaseModel):
    """A text whose language is to be detected."""

    q: str
    api_key: str | None = Field(None, max_length=1000)


class DetectedLanguage(BaseModel):
    """A language, and as confidence the percentage of the text's characters that are familiar to the tokenizer of its
    model; in responses of /translate, the mean percentage over the sentences of the text.
    """

    confidence: float
    language: str


class SupportedLanguage(BaseModel):
    """A language, and the languages that it can be translated to; only itself if it is not a source language."""

    code: str
    name: str
    targets: list[str]


class LibreTranslateResponse(BaseModel):
    """A translation; if `q` was a list, every field is a list with one entry for each text."""

    translatedText: str | list[str]
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None
    alternatives: list[str] | list[list[str]] | None = None


class Wanted(NamedTuple):
    """How texts are to be translated: languages, the run if it was named, format, and number of translations."""

    source: str
    target: str
    model: str | None = None
    format: str = "text"
    n_best: int = 1
    split: Split = "paragraphs"
    elements: Elements = Elements()
    """Names of elements that DeepL's clients declare to be inline, blocks, or not translated."""
    find_terms: FindTerms | None = None
    """Function that finds the glossary terms to enforce; None without a glossary."""


class TextTranslation(NamedTuple):
    """Translations of a text, best first, the source language of the run that made them, and the text's familiarity."""

    texts: list[str]
    source: str
    familiar: float
    """Mean over the sentences of the text of `Tokenizer.familiar`, a share of characters from 0 to 1; 0 if there are no
    sentences.
    """


def routes(service: Service) -> APIRouter:
    """Return a router with the routes of LibreTranslate's API that this server supports."""
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
        """List the source and target languages, each with the languages that it can be translated to."""
        return listed

    @found.post("/detect", openapi_extra=described(DetectRequest))
    async def detect(request: Request) -> list[DetectedLanguage]:
        """Return the source languages of all runs, the most probable language of a text first: the one whose tokenizer
        knows most of its letters and words.
        """
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
        """Translate a text, or a list of texts."""
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
    """Translate whole texts: split each into sentences, translate these, and join the translations."""
    service.check_texts(texts)
    ways = await _ways(service, wanted, texts, client)
    plans = await asyncio.to_thread(_plans, service, texts, ways, wanted)
    results: dict[Way, dict[str, dict[str, Any]]] = {}
    for way in dict.fromkeys(ways):
        some = [plan for plan, each in zip(plans, ways, strict=True) if each == way]
        results[way] = await _translated(service, some, way, wanted, client)
    translations = []
    for plan, way in zip(plans, ways, strict=True):
        found = [results[way][sentence] for sentence in plan.sentences]
        said = [each.text for each in await asyncio.to_thread(_joined, plan, found, wanted.n_best)]
        share = sum(each["familiar"] for each in found) / len(found) if found else 0.0
        translations.append(TextTranslation(said, source_language(service.runs[way[0]]), share))
    return translations


async def translate_documents(
    service: Service, texts: Sequence[str], wanted: Wanted, to: str | None, client: str
) -> dict[str, Any]:
    """Translate documents by one run, for `/v1/translate`; a document's score is the mean score of its sentences."""
    service.check_texts(texts)
    name, run = service.run(wanted.model)
    format: Any = wanted.format  # `auto` is one, too
    plans = await asyncio.to_thread(lambda: [document.plan(text, format, run.text_options) for text in texts])
    results = await _translated(service, plans, (name, to), wanted, client)
    answers = []
    for plan in plans:
        found = [results[sentence] for sentence in plan.sentences]
        joined = await asyncio.to_thread(_joined, plan, found, wanted.n_best)
        scores = [_mean_score(found, place) for place in range(wanted.n_best)]
        answers.append(
            {
                "translations": [
                    {"text": each.text, "score": score, "probability": None}
                    for each, score in zip(joined, scores, strict=True)
                ],
                "counts": joined[0].counts.json(),
                "source_tokens": sum(each["source_tokens"] for each in found),
                "cut": False,
            }
        )
    facts = service.quick.facts.get(name)
    return {"model": name, "engine": facts.engine if facts else "", "results": answers}


def _mean_score(results: Sequence[dict[str, Any]], place: int) -> float:
    scores = [each["translations"][min(place, len(each["translations"]) - 1)]["score"] for each in results]
    return sum(scores) / len(scores) if scores else 0.0


def _plans(service: Service, texts: Sequence[str], ways: Sequence[Way], wanted: Wanted) -> list[DocumentPlan]:
    """Split each text as a document, with the options of the run that translates it."""
    found = []
    for text, (name, _) in zip(texts, ways, strict=True):
        options = replace(service.runs[name].text_options, split=wanted.split, elements=wanted.elements)
        found.append(document.plan(text, _format(wanted), options))
    return found


def _format(wanted: Wanted) -> Literal["plain", "html", "xml"]:
    match wanted.format:
        case "html" | "xml":
            return wanted.format
    return "plain"


def _joined(plan: DocumentPlan, results: Sequence[dict[str, Any]], n_best: int) -> list[Joined]:
    """Return the n best translations of a text; of a sentence with fewer than n, the last one is repeated."""
    texts = []
    for place in range(n_best):
        best = [each["translations"][min(place, len(each["translations"]) - 1)] for each in results]
        texts.append(plan.join([Translated(each["text"], _links(each)) for each in best]))
    return texts


def _links(translation: dict[str, Any]) -> list[tuple[Span, Span]]:
    """Return pairs of linked spans, in characters, of a sentence and its translation; empty if it was not aligned."""
    links = translation.get("alignment", {}).get("links", ())
    return [(tuple(link["source"]), tuple(link["target"])) for link in links]


def described(body: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a body, JSON or a form, that a route parses itself."""
    schema = body.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
    content = {kind: {"schema": schema} for kind in kinds}
    return {"requestBody": {"required": True, "content": content}}


async def _admitted(service: Service, request: Request, kind: type[Fields]) -> tuple[Fields, str]:
    """Return the fields of a request and its client.

    The API key is checked even if the fields are invalid; a client without a valid key gets only that error.
    """
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
    """Return the fields of body and query string; empty or null fields count as missing, except an empty `q`."""
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
        lists: names of fields all of whose values are returned, as a list, if a form or the query string has several.
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
    """Return the last value of each field; for a field in `lists` with several values, the list of all."""
    return {name: values if name in lists and len(values) > 1 else values[-1] for name, values in form.items()}


def _urlencoded(text: str) -> dict[str, list[str]]:
    return parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)


def parse_multipart(body: bytes, sent_as: str) -> dict[str, list[str]]:
    """Return the values of each field of a multipart form, much faster than Python's email package."""
    boundary = re.search(r'boundary="?([^";,]{1,70})', sent_as)
    if boundary is None:
        raise ValueError("a multipart body without a boundary")
    form: dict[str, list[str]] = {}
    _, *parts = body.split(b"--" + boundary[1].encode(), MOST_FIELDS + 2)  # the last part is behind the last boundary
    if len(parts) > MOST_FIELDS + 1:
        raise ValueError(f"more than {MOST_FIELDS:,} fields")
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
    """Return the runs whose languages fit best, with their target tags; an unknown language fits any, but less well."""
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
    """Return 2 if the languages are equal but for a region, 1 if one of them is unknown, and otherwise 0."""
    if UNKNOWN in (wanted, found):
        return 1
    return 2 if matches(wanted, found) or matches(found, wanted) else 0


async def _ways(service: Service, wanted: Wanted, texts: Sequence[str], client: str) -> list[Way]:
    """Return the run that translates each text: if several fit, the one whose vocabulary covers most of the text."""
    runs = service.runs if wanted.model is None else dict([service.run(wanted.model)])
    fitting = fitting_runs(runs, wanted.source, wanted.target)
    if len(fitting) == 1:
        return [fitting[0]] * len(texts)
    options = Options(split="nowhere", elements=wanted.elements)
    plans = await asyncio.to_thread(lambda: [document.plan(text, _format(wanted), options) for text in texts])
    spoken = [" ".join(plan.sentences) for plan in plans]
    tags = dict(fitting)
    best = [next(name for name in known if name in tags) for known in await service.familiar(spoken, client)]
    return [(name, tags[name]) for name in best]


async def _translated(
    service: Service, plans: Sequence[DocumentPlan], way: Way, wanted: Wanted, client: str
) -> dict[str, dict[str, Any]]:
    """Return the result of each sentence, cached or new; with alignments if tags or placeholders need them."""
    name, to = way
    results: dict[str, dict[str, Any]] = {}
    aligned: dict[str, bool] = {}
    for plan in plans:
        for sentence, is_aligned in zip(plan.sentences, plan.aligned, strict=True):
            aligned[sentence] = aligned.get(sentence, False) or (is_aligned and service.can_align(name))
    keys = {sentence: (*way, wanted.n_best, is_aligned, sentence) for sentence, is_aligned in aligned.items()}
    if not wanted.find_terms:
        results = {sentence: service.kept[key] for sentence, key in keys.items() if key in service.kept}
        aligned = {sentence: is_aligned for sentence, is_aligned in aligned.items() if sentence not in results}
    for alignments in (False, True):
        lines = [sentence for sentence, is_aligned in aligned.items() if is_aligned == alignments]
        for begin in range(0, len(lines), service.limits.texts):
            some = lines[begin : begin + service.limits.texts]
            terms = await wanted.find_terms(some) if wanted.find_terms else ()
            asked = Asked(some, to, wanted.n_best, alignments=alignments, familiar=True, terms=terms)
            _, _, found = await service.translate(asked, client, name)
            for line, result in zip(some, found, strict=True):
                if result["cut"]:
                    raise RefusedError(
                        413,
                        f"a sentence of {len(line):,} characters is longer than the model reads. Send it in parts",
                    )
                results[line] = result
    if not wanted.find_terms:
        for sentence, result in results.items():
            service.keep(keys[sentence], result)
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
