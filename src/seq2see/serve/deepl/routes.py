"""DeepL's routes under `/v2`, as its official clients use them with `server_url`: JSON or form bodies.

Errors have DeepL's form, `{"message": ...}`. Options that a run cannot fulfil, such as a choice of formality, are
refused with the name of the option; options that only express a preference are accepted.
"""

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seq2see.documents.document import Split
from seq2see.documents.markup import Elements
from seq2see.serve import bodies, libretranslate
from seq2see.serve.deepl.glossary_store import GlossaryStore, StoredGlossary
from seq2see.serve.libretranslate import UNKNOWN, Wanted, language_name, source_language, target_languages
from seq2see.serve.limits import RefusedError
from seq2see.serve.service import CLIENT, Service, in_words

Fields = TypeVar("Fields", bound=BaseModel)
NO_LIMIT = 1_000_000_000_000
"""Limit of characters that `/v2/usage` reports: the value that DeepL uses for accounts without a limit."""
MOST_CLIENTS = 10_000
"""Maximum number of clients whose translated characters are counted for `/v2/usage`; the counts of those that have sent
nothing for the longest time are dropped.
"""
VARIANTS = {"EN": ("EN-GB", "EN-US"), "PT": ("PT-BR", "PT-PT")}
"""Target languages that the official clients refuse without a region, and the variants that are listed instead. A run
without regional variants gives the same translation for all.
"""
SPLITS: dict[str, Split] = {"0": "nowhere", "1": "lines", "nonewlines": "sentences"}
LISTS = ("text", "ignore_tags", "splitting_tags", "non_splitting_tags")
"""Fields that may be repeated in a form, so that all their values are used; of other fields only the last value is."""
UNSUPPORTED = (
    *("context", "custom_instructions", "style_id", "translation_memory_id", "translation_memory_threshold"),
    "glossary_ids",
)
"""Options of DeepL's `/v2/translate` that no run can fulfil; a request that sets one of them is refused."""


TagNames = Annotated[str, Field(max_length=10_000)] | Annotated[list[str], Field(max_length=1000)]
"""Names of XML or HTML elements: a list, or a text with commas between the names."""


class DeepLRequest(BaseModel):
    """Texts to translate, their languages, and the options."""

    model_config = ConfigDict(extra="forbid")

    text: str | list[str] = Field(description="A text, or a list of them.")
    target_lang: str = Field(max_length=40, description="The language to translate to.")
    source_lang: str | None = Field(
        None, max_length=40, description="The language of the texts; detected if not given."
    )
    split_sentences: Literal["0", "1", "nonewlines"] | None = Field(
        None, description="`0`: each text is one sentence to the model; `nonewlines`: a line break ends no sentence."
    )
    preserve_formatting: bool = Field(False, description="Accepted and ignored: runs never change the formatting.")
    formality: Literal["default", "prefer_more", "prefer_less", "more", "less"] = Field(
        "default", description="`more` and `less` are refused: a run cannot choose the formality."
    )
    tag_handling: Literal["html", "xml"] | None = Field(
        None, description="Format of the texts; tags are placed around the translations of their words."
    )
    tag_handling_version: Literal["v1", "v2"] | None = Field(
        None, description="Accepted and ignored: there is one version."
    )
    outline_detection: bool = Field(True, description="`false` is refused: name `non_splitting_tags` instead.")
    ignore_tags: TagNames = Field([], description="Elements whose content is not translated.")
    splitting_tags: TagNames = Field([], description="Elements that end a sentence.")
    non_splitting_tags: TagNames = Field([], description="Elements that do not end a sentence.")
    model_type: Literal["latency_optimized", "quality_optimized", "prefer_quality_optimized"] | None = Field(
        None, description="Accepted and ignored: a run has one model."
    )
    glossary_id: str | None = Field(None, max_length=100, description="Id of a glossary; needs `source_lang`.")
    show_billed_characters: bool = Field(False, description="Return the number of characters of each text.")


class GlossaryRequest(BaseModel):
    """A glossary to be created."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200)
    source_lang: str = Field(max_length=40)
    target_lang: str = Field(max_length=40)
    entries: str = Field(description="One entry per line: a term and its translation.")
    entries_format: Literal["tsv", "csv"] = Field(
        description="`tsv`: term and translation are separated by a tab; `csv`: by a comma."
    )


class GlossaryInfo(BaseModel):
    """A glossary that was created."""

    glossary_id: str
    name: str
    ready: bool = True
    source_lang: str
    target_lang: str
    creation_time: str
    entry_count: int


class GlossaryList(BaseModel):
    """The glossaries of a client."""

    glossaries: list[GlossaryInfo]


class GlossaryPair(BaseModel):
    """Source and target language of a glossary."""

    source_lang: str
    target_lang: str


class GlossaryPairs(BaseModel):
    """All pairs of source and target language that a glossary may have."""

    supported_languages: list[GlossaryPair]


class DeepLError(BaseModel):
    """Reason why a request was not answered, in one line."""

    message: str


class DeepLTranslation(BaseModel):
    """The translation of a text, and the language of the text."""

    detected_source_language: str
    text: str
    billed_characters: int | None = None


class DeepLTranslations(BaseModel):
    """The translations of all texts, in order."""

    translations: list[DeepLTranslation]


class DeepLLanguage(BaseModel):
    """A language, by DeepL's code."""

    language: str
    name: str
    supports_formality: bool = False


class DeepLUsage(BaseModel):
    """Characters that were translated for this client since the service was started, and the limit."""

    character_count: int
    character_limit: int = NO_LIMIT


class CharacterCounts:
    """Numbers of characters translated for each client since the service was started, in memory."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def add(self, client: str, characters: int) -> None:
        self._counts[client] = self._counts.pop(client, 0) + characters
        while len(self._counts) > MOST_CLIENTS:
            self._counts.popitem(last=False)

    def of(self, client: str) -> int:
        return self._counts.get(client, 0)


def routes(service: Service) -> APIRouter:
    """Return a router with the routes of DeepL's API that this server supports."""
    problems = {status: each | {"model": DeepLError} for status, each in bodies.PROBLEMS.items()}
    found = APIRouter(prefix="/v2", tags=["DeepL"], responses=problems)
    counts, store = CharacterCounts(), GlossaryStore()
    found.include_router(_glossary_routes(service, store))
    listed = {kind: list(_languages(service, kind)) for kind in ("source", "target")}

    @found.post("/translate", openapi_extra=libretranslate.described(DeepLRequest), response_model_exclude_none=True)
    async def translate(request: Request) -> DeepLTranslations:
        """Translate one text or several."""
        client = request.scope[CLIENT]
        asked = await _asked(request, DeepLRequest, LISTS)
        texts = [asked.text] if isinstance(asked.text, str) else asked.text
        _check_options(asked)
        wanted = _wanted(asked)
        if asked.glossary_id is not None:
            glossary = store.find(client, asked.glossary_id)
            _check_glossary(glossary, asked)
            wanted = wanted._replace(find_terms=partial(store.find_terms, client, glossary))
        translations = await libretranslate.translate_texts(service, texts, wanted, client)
        counts.add(client, sum(map(len, texts)))
        return DeepLTranslations(
            translations=[
                DeepLTranslation(
                    detected_source_language=_base(each.source if each.source != UNKNOWN else asked.source_lang),
                    text=each.texts[0],
                    billed_characters=len(text) if asked.show_billed_characters else None,
                )
                for text, each in zip(texts, translations, strict=True)
            ]
        )

    @found.get("/languages")
    async def languages(request: Request) -> list[DeepLLanguage]:
        """List the languages to translate from, or those to translate to (`type=target`)."""
        fields = await libretranslate.read_fields(request, ())
        kind = fields.get("type", "source") if isinstance(fields, dict) else None
        if kind not in ("source", "target"):
            raise RefusedError(400, "type: expected source or target")
        return listed[kind]

    @found.get("/usage")
    async def usage(request: Request) -> DeepLUsage:
        """Return how many characters were translated for this client."""
        return DeepLUsage(character_count=counts.of(request.scope[CLIENT]))

    return found


def _glossary_routes(service: Service, store: GlossaryStore) -> APIRouter:
    found = APIRouter()
    pairs = {
        (_base(source_language(run)).lower(), _base(code).lower()): None
        for run in service.runs.values()
        for code in target_languages(run)
    }

    @found.get("/glossary-language-pairs")
    async def language_pairs() -> GlossaryPairs:
        """List the pairs of source and target language that a glossary may have."""
        return GlossaryPairs(
            supported_languages=[GlossaryPair(source_lang=source, target_lang=target) for source, target in pairs]
        )

    @found.post("/glossaries", status_code=201, openapi_extra=libretranslate.described(GlossaryRequest))
    async def create_glossary(request: Request) -> GlossaryInfo:
        """Create a glossary, which is kept until it is deleted or the service ends."""
        asked = await _asked(request, GlossaryRequest)
        source, target = asked.source_lang.lower(), asked.target_lang.lower()
        libretranslate.fitting_runs(service.runs, source, target)  # refuses languages that no run has
        client = request.scope[CLIENT]
        return _info(await store.create(client, asked.name, source, target, asked.entries, asked.entries_format))

    @found.get("/glossaries")
    async def list_glossaries(request: Request) -> GlossaryList:
        """List the glossaries of this client."""
        return GlossaryList(glossaries=[_info(each) for each in store.of(request.scope[CLIENT])])

    @found.get("/glossaries/{glossary_id}")
    async def glossary(glossary_id: str, request: Request) -> GlossaryInfo:
        """Describe a glossary of this client."""
        return _info(store.find(request.scope[CLIENT], glossary_id))

    @found.get("/glossaries/{glossary_id}/entries", response_class=Response)
    async def entries(glossary_id: str, request: Request) -> Response:
        """Return the terms of a glossary and their translations, separated by tabs."""
        stored = store.find(request.scope[CLIENT], glossary_id)
        return Response(stored.entries, media_type="text/tab-separated-values; charset=utf-8")

    @found.delete("/glossaries/{glossary_id}", status_code=204)
    async def delete_glossary(glossary_id: str, request: Request) -> None:
        """Delete a glossary of this client."""
        store.delete(request.scope[CLIENT], glossary_id)

    return found


def _info(stored: StoredGlossary) -> GlossaryInfo:
    return GlossaryInfo(
        glossary_id=stored.id,
        name=stored.name,
        source_lang=stored.source,
        target_lang=stored.target,
        creation_time=stored.created.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        entry_count=len(stored.terms),
    )


def _check_glossary(stored: StoredGlossary, asked: DeepLRequest) -> None:
    """Raise a refusal if the languages of a request, apart from regions, are missing or not those of the glossary."""
    if asked.source_lang is None:
        raise RefusedError(400, "source_lang: required where glossary_id is given")
    asked_for, has = (_base(asked.source_lang), _base(asked.target_lang)), (_base(stored.source), _base(stored.target))
    if asked_for != has:
        raise RefusedError(
            400, f"glossary_id: this glossary is for {has[0]} to {has[1]}, not for {asked_for[0]} to {asked_for[1]}"
        )


async def _asked(request: Request, kind: type[Fields], lists: tuple[str, ...] = ()) -> Fields:
    """Return the fields of a request as a `kind`; null fields count as missing.

    Raise a refusal if a field is invalid, or if one of `UNSUPPORTED` is set.

    Args:
        lists: names of the fields that a form may repeat; all their values are returned.
    """
    fields = await libretranslate.read_fields(request, lists)
    if isinstance(fields, dict):
        fields = {name: value for name, value in fields.items() if value is not None}
        if unsupported := next((name for name in UNSUPPORTED if fields.get(name)), None):
            raise RefusedError(400, f"{unsupported}: not supported by this server. Leave it out")
        fields = {name: value for name, value in fields.items() if name not in UNSUPPORTED}
    try:
        return kind.model_validate(fields)
    except ValidationError as problem:
        raise RefusedError(400, in_words(problem.errors(include_input=False, include_url=False))) from None


def _check_options(asked: DeepLRequest) -> None:
    """Raise a refusal for option values that runs do not support: of formality and outline detection."""
    if not asked.outline_detection:
        raise RefusedError(400, "outline_detection: cannot be switched off. Name non_splitting_tags instead")
    formality = asked.formality
    if formality in ("more", "less"):
        raise RefusedError(400, f"formality: runs cannot choose it. Leave it out, or ask for prefer_{formality}")


def _wanted(asked: DeepLRequest) -> Wanted:
    format = asked.tag_handling or "text"
    by_default: Split = "lines" if format == "text" else "sentences"
    split = by_default if asked.split_sentences is None else SPLITS[asked.split_sentences]
    elements = Elements(_names(asked.non_splitting_tags), _names(asked.splitting_tags), _names(asked.ignore_tags))
    return Wanted((asked.source_lang or "auto").lower(), asked.target_lang.lower(), None, format, 1, split, elements)


def _names(given: str | list[str]) -> frozenset[str]:
    """Return the names of XML or HTML elements, given as a list or separated by commas, in lower case."""
    listed = [given] if isinstance(given, str) else given
    return frozenset(name.strip().lower() for each in listed for name in each.split(",") if name.strip())


def _languages(service: Service, kind: str) -> Iterator[DeepLLanguage]:
    """Yield the source or target languages of all runs, by DeepL's codes."""
    codes = {
        code: None
        for run in service.runs.values()
        for code in ([source_language(run)] if kind == "source" else target_languages(run))
    }
    for code in codes:
        upper = _base(code) if kind == "source" else code.upper()
        for each in VARIANTS.get(upper, (upper,)) if kind == "target" else (upper,):
            yield DeepLLanguage(language=each, name=language_name(_spelled(each)))


def _base(code: str | None) -> str:
    """Return DeepL's code of a language without its region, in upper case; `UND` if it is unknown."""
    return (code or UNKNOWN).partition("-")[0].upper()


def _spelled(code: str) -> str:
    """Return a language code as the library Babel spells it: `en-GB`."""
    language, dash, region = code.partition("-")
    return f"{language.lower()}{dash}{region}"
