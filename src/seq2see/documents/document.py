"""Split a document into sentences, and put it together again from their translations.

    plan = document.plan("<p>Click <b>the red</b> button.</p>", "html")
    plan.sentences                                  # ["Click the red button."]
    plan.join([Translated("Klicke auf den roten Knopf.", links)]).text

The code that translates the sentences, at once or in jobs, needs to know nothing about markup. `plan.aligned` names the
sentences for which links are useful; without links, tags keep their order and are placed in proportion to the length.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from seq2see.documents import flows, markup, placeholders, placing, segments
from seq2see.documents.flows import OBJECT, Mark, TextFlow
from seq2see.documents.markup import Elements
from seq2see.documents.segments import Limit, Span
from seq2see.documents.units import Item
from seq2see.errors import SettingError, nearest

Format = Literal["auto", "plain", "html", "xml"]
Split = flows.Split
FOR_SPLITTING = "É"
"""Letter that replaces `OBJECT` (a placeholder) while text is split into sentences: a sentence can begin with it, and
it is no abbreviation.
"""


@dataclass(frozen=True)
class Options:
    """Options for splitting documents into sentences; see `seq2see.decoding.running_text.options` for those of a
    run.
    """

    language: str | None = None
    """Code of the language of the document, by whose rules it is split into sentences; None if it is to be guessed from
    the script.
    """
    limit: Limit | None = None
    """Maximum length in tokens, above which a sentence is cut into parts; None for no limit."""
    is_language: bool = True
    """Whether the text is in a human language: it is split into sentences, and placeholders, URLs and e-mail addresses
    come out unchanged. Otherwise each line, or each flow of markup, is one sentence, in which `%12` is no placeholder.
    """
    split: Split = "paragraphs"
    """Where plain text is split: at the ends of sentences and of `paragraphs`, or of all `lines`; at the ends of
    `sentences` only; or `nowhere`. Markup is split at block elements and, unless this is `nowhere`, into sentences.
    """
    stand_ins: tuple[str, ...] = ()
    """Words that the model copies into its output, and that it gets in place of placeholders. If the sentence contains
    all of them, or there are none, the model gets the sentence without its placeholders.
    """
    elements: Elements = Elements()
    """Names of elements whose treatment (inline, block, not translated) differs from the default of HTML or XML."""


class Translated(NamedTuple):
    """The translation of a sentence."""

    text: str
    links: Sequence[tuple[Span, Span]] = ()
    """Pairs of spans: characters of the sentence, and the characters of the translation aligned with them."""


@dataclass
class Counts:
    """Numbers of sentences, tags and placeholders of a document, and how they were placed."""

    sentences: int = 0
    """Number of sentences that were translated, with each repetition of a sentence and each part of a cut one."""
    different: int = 0
    """Number of distinct sentences; each of them was translated once."""
    parts: int = 0
    """Number of parts that overlong sentences were cut into; they are also counted in `sentences`."""
    tags: int = 0
    """Number of tags inside sentences; an element with two tags counts once."""
    tags_guessed: int = 0
    """Number of tags placed by their position in the sentence, because no word alignment determined their place."""
    placeholders: int = 0
    """Number of placeholders (such as `%s`, URLs and e-mail addresses) inside sentences."""
    copied: int = 0
    """Number of placeholders that take the place of their stand-in (see `Options.stand_ins`), because the translation
    contains it as often as the sentence; and of those in sentences that equal their translation.
    """
    aligned: int = 0
    """Number of placeholders, without those in `copied`, that were placed by word alignment."""
    guessed: int = 0
    """Number of placeholders that were placed by their position in the sentence, without stand-in or alignment."""

    def json(self) -> dict[str, Any]:
        return asdict(self)


class Joined(NamedTuple):
    """A translated document."""

    text: str
    counts: Counts


@dataclass(frozen=True)
class _Slot:
    """A sentence and its place in the document."""

    raw: Span
    """Span of the document, in characters, that the translation of this sentence replaces."""
    number: int
    """Index of the sentence's text in `DocumentPlan.sentences`."""
    items: tuple[Item, ...]
    head: str = ""
    """White space between the tags before the sentence; `tail` is the white space between the tags after it."""
    tail: str = ""
    quoted: bool = False
    """Whether the sentence is in the value of an attribute, so that quotation marks must be escaped."""


@dataclass
class DocumentPlan:
    """The sentences of a document, and the information needed to reassemble the document from translations."""

    document: str
    format: Literal["plain", "html", "xml"]
    sentences: list[str] = field(default_factory=list)
    """The texts to translate, each of them once, even if the document repeats it."""
    aligned: list[bool] = field(default_factory=list)
    """For each of `sentences`, whether it contains tags or placeholders, so that word alignment is needed to place
    them.
    """
    _slots: list[_Slot] = field(default_factory=list)
    _attributes: list[_Slot] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)
    _parts: int = 0

    def join(self, translations: Sequence[Translated]) -> Joined:
        """Return the document in which each of `sentences` is replaced by its translation, given in the same order.

        Everything else is unchanged, and so is a sentence whose translation equals the sentence.
        """
        if len(translations) != len(self.sentences):
            raise ValueError(f"{len(translations)} translations for {len(self.sentences)} sentences")
        counts = Counts(len(self._slots) + len(self._attributes), len(self.sentences), self._parts)
        values = [(slot.raw, self._written(slot, translations, [], counts)) for slot in self._attributes]
        parts = [(slot.raw, self._written(slot, translations, values, counts)) for slot in self._slots]
        inside = [raw for raw, _ in parts]
        free = [value for value in values if not _is_inside(value[0], inside)]
        return Joined(_replaced(self.document, (0, len(self.document)), sorted(parts + free)), counts)

    def _written(
        self, slot: _Slot, translations: Sequence[Translated], values: Sequence[tuple[Span, str]], counts: Counts
    ) -> str:
        sentence, translation = self.sentences[slot.number], translations[slot.number]
        objects = sum(item.kind == "object" for item in slot.items)
        counts.placeholders += objects
        counts.tags += sum(item.kind in ("open", "point") for item in slot.items)

        def read(raw: Span) -> str:
            return _replaced(self.document, raw, values)

        def write(text: str) -> str:
            return text if self.format == "plain" else markup.escape(text, self.format, slot.quoted)

        text = " ".join(translation.text.split()) if "\n" in translation.text else translation.text
        if text == sentence:
            counts.copied += objects
            return read(slot.raw)
        if not slot.items:
            return write(text)
        placed = placing.place(
            sentence, slot.items, text, translation.links, write, read, insert_breaks=self.format == "plain"
        )
        counts.tags_guessed += placed.tags_guessed
        counts.copied += placed.copied
        counts.aligned += placed.aligned
        counts.guessed += placed.guessed
        return f"{slot.head}{placed.text}{slot.tail}"

    def _add_flow(self, flow: TextFlow, options: Options, quoted: bool = False) -> None:
        """Split a flow (a stretch of continuous text) into sentences, and add them to the plan."""
        split = flow.text.replace(OBJECT, FOR_SPLITTING)
        if not any(map(str.isalnum, flow.text)):
            return
        spans: list[Span] = []
        splits = options.is_language and options.split != "nowhere"
        whole = [segments.trimmed(split, 0, len(split))]
        for start, end in segments.sentences(split, options.language) if splits else whole:
            parts = [(0, end - start)] if options.limit is None else segments.cut(split[start:end], options.limit)
            self._parts += len(parts) if len(parts) > 1 else 0
            spans += [(start + first, start + last) for first, last in parts]
        tags = [mark for mark in flow.marks if mark.kind != "break"]
        numbers = {mark.number: place for place, mark in enumerate(tags) if mark.number >= 0}
        raws = [flow.raw(*span) for span in spans]
        used = 0  # tags before this one belong to earlier sentences
        for place, (span, raw) in enumerate(zip(spans, raws, strict=True)):
            first = max(used, bisect_left(tags, raw[0], key=_start))
            last = max(first, bisect_left(tags, raw[1], key=_start))
            gap = len(tags) if place + 1 == len(raws) else max(last, bisect_left(tags, raws[place + 1][0], key=_start))
            begin = next((n for n in range(used, first) if first <= _partner(tags[n], "open", numbers) < last), first)
            stop = next(
                (n + 1 for n in range(gap - 1, last - 1, -1) if begin <= _partner(tags[n], "close", numbers) < last),
                last,
            )
            used = stop
            breaks = flow.marks if len(tags) < len(flow.marks) else []
            inside = [mark for mark in breaks if mark.kind == "break" and raw[0] < mark.raw[0] < raw[1]]
            self._add_sentence(flow, span, [*tags[begin:stop], *inside], options, quoted)

    def _add_sentence(self, flow: TextFlow, span: Span, marks: list[Mark], options: Options, quoted: bool) -> None:
        """Add a sentence with the given tags and line breaks, which are inside it or at its ends, if it has a letter or
        digit.
        """
        text = flow.text[slice(*span)]
        if not any(map(str.isalnum, text)):
            return
        words = placeholders.stand_ins(options.stand_ins, text, text.count(OBJECT))
        sentence, places, objects = _with_stand_ins(text, words)
        marks.sort(key=_start)
        raw_start, raw_end = flow.raw(*span)
        items = [
            Item(
                "object",
                there,
                flow.raw(span[0] + place, span[0] + place + 1),
                -1,
                -1,
                *_blanks(text, place, place + 1),
            )
            for place, there in objects
        ]
        for mark in marks:
            place = min(max(mark.place - span[0], 0), len(text))
            at = places[place]
            items.append(Item(mark.kind, (at, at), mark.raw, mark.number, mark.partner, *_blanks(text, place, place)))
        items.sort(key=lambda item: item.raw)
        edges = [mark.raw for mark in marks if mark.kind != "break"]
        raw = min([raw_start, *(start for start, _ in edges)]), max([raw_end, *(end for _, end in edges)])
        head = _outside_of(self.document, (raw[0], raw_start), edges)
        tail = _outside_of(self.document, (raw_end, raw[1]), edges)
        number = self._numbers.setdefault(sentence, len(self.sentences))
        if number == len(self.sentences):
            self.sentences.append(sentence)
            self.aligned.append(False)
        self.aligned[number] |= any(item.kind != "break" for item in items)
        (self._attributes if quoted else self._slots).append(_Slot(raw, number, tuple(items), head, tail, quoted))


def plan(text: str, format: Format = "auto", options: Options | None = None) -> DocumentPlan:
    """Return the plan for a document: the sentences to translate, and how to reassemble the document.

    Args:
        format: `plain`, `html`, `xml`, or `auto`, which decides by the text.
    """
    check_format(format)
    options = options or Options()
    chosen = markup.detect(text) if format == "auto" else format
    found = DocumentPlan(text, chosen)
    if chosen == "plain":
        for flow in flows.of_plain_text(text, options.is_language, options.split):
            found._add_flow(flow, options)
        return found
    texts, attributes = markup.flows(text, chosen, options.elements, options.is_language)
    for flow in texts:
        found._add_flow(flow, options)
    for flow in attributes:
        found._add_flow(flow, options, quoted=True)
    return found


def check_format(format: str) -> None:
    """Raise an error if the format is not known."""
    if format not in get_args(Format):
        raise SettingError(f"--markup {format}: unknown. {nearest(format, get_args(Format))}")


def _start(mark: Mark) -> int:
    return mark.raw[0]


def _partner(mark: Mark, kind: str, numbers: dict[int, int]) -> int:
    """Return the index of the other tag of the element of `mark`; -1 if there is none, or `mark.kind` is not `kind`.

    Args:
        numbers: the index of each tag of the flow, by `Mark.number`.
    """
    return numbers.get(mark.partner, -1) if mark.kind == kind else -1


def _blanks(text: str, start: int, end: int) -> tuple[bool, bool]:
    """Return whether a space precedes the part of a text from `start` to `end`, and whether one follows it."""
    return text[start - 1 : start].isspace(), text[end : end + 1].isspace()


def _with_stand_ins(text: str, words: Sequence[str]) -> tuple[str, list[int], list[tuple[int, Span]]]:
    """Return a sentence with stand-ins for placeholders, the new index of each character, and the placeholders.

    Each placeholder is given by its index in `text` and the span of its stand-in. One with an empty stand-in leaves no
    double space, and no space before punctuation.
    """
    said: list[str] = []
    places: list[int] = []
    objects: list[tuple[int, Span]] = []
    length = 0
    rest = iter(words)
    for place, letter in enumerate(text):
        places.append(length)
        if letter == OBJECT:
            letter = next(rest)
            following = text[place + 1 : place + 2]
            if not letter and said and said[-1] == " " and not (following.isalnum() or following in (" ", OBJECT)):
                said.pop()  # before a full stop or a comma
                length -= 1
            objects.append((place, (length, length + len(letter))))
        elif letter == said[-1] == " " if said else letter.isspace():
            letter = ""
        if letter:
            said.append(letter)
            length += len(letter)
    sentence = "".join(said).rstrip()
    most = len(sentence)
    spans = [(place, (min(most, start), min(most, end))) for place, (start, end) in objects]
    return sentence, [min(most, place) for place in [*places, length]], spans


def _outside_of(document: str, span: Span, parts: Sequence[Span]) -> str:
    """Return the characters of a span outside the given parts, such as the spaces between tags."""
    said = []
    at = span[0]
    for start, end in parts:
        if span[0] <= start and end <= span[1]:
            said.append(document[at:start])
            at = max(at, end)
    said.append(document[at : span[1]])
    return "".join(said)


def _is_inside(span: Span, ordered: Sequence[Span]) -> bool:
    place = bisect_left(ordered, (span[0] + 1,)) - 1
    return place >= 0 and span[1] <= ordered[place][1]


def _replaced(document: str, span: Span, parts: Sequence[tuple[Span, str]]) -> str:
    """Return a span of a document in which the given parts, in order, are replaced by other texts."""
    said: list[str] = []
    at = span[0]
    for number in range(bisect_left(parts, ((span[0],), "")), len(parts)):
        (start, end), text = parts[number]
        if end > span[1]:
            break
        said += (document[at:start], text)
        at = end
    said.append(document[at : span[1]])
    return "".join(said)
