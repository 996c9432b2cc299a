"""Put tags and placeholders back into a translation, at the words that are aligned with their neighbours in the source.

    sentence   Click <b>the red</b> button          (0, 5) (6, 9) (10, 13) (14, 20)
    links      Klicke <- Click, roten <- red, ...    which characters each part of the translation comes from
    result     Klicke auf den <b>roten</b> Knopf

An element is put around the run of words most of which come from inside it. Elements are nested as they were, so that
the result is well-formed whatever the links say.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from seq2see.documents.segments import Span
from seq2see.documents.units import Item, Unit, best_run, score, units_of, word_spans

MOST_ITEMS = 60
"""Maximum number of tags and placeholders of a sentence at which tags are placed by word alignment; if there are more,
all tags keep their order and are spread in proportion to the length of the text.
"""
FAR = 4
"""Number of words on each side of an empty element or placeholder whose word links are tried, the nearest first, to
find its place in the translation.
"""


@dataclass(eq=False)
class Element:
    """An element around a part of a sentence, or an empty element or placeholder between its words."""

    span: Span
    opening: Span | None = None
    closing: Span | None = None
    from_start: bool = False
    """Whether the element was opened in an earlier sentence, so that it begins at the start of the translation."""
    to_end: bool = False
    """Whether the element is closed in a later sentence, so that it ends at the end of the translation."""
    item: Item | None = None
    """The placeholder, or the tag from which the element was made (the start tag, if the sentence has it); None for the
    root, which is the whole sentence.
    """
    children: list["Element"] = field(default_factory=list)
    is_known: bool = True
    """Whether a word link determined the place of the element in the translation; otherwise it is a guess."""
    window: Span = (0, 0)
    """Index of the first unit (see `Unit`) of the translation that the element encloses, and of the unit after the
    last; if both are equal, the element is empty and stands before that unit.
    """


class Placed(NamedTuple):
    """A translation with its tags and placeholders, and how they were placed."""

    text: str
    tags_guessed: int
    """Number of elements and tags that were placed without a word link."""
    copied: int
    """Number of placeholders that take the place of their stand-in (a word that the model got instead), because the
    translation contains it as often as the sentence.
    """
    aligned: int
    """Number of placeholders, without those in `copied`, that were placed by word links."""
    guessed: int
    """Number of placeholders that were placed neither by a stand-in nor by word links."""


Write = Callable[[str], str]
"""Function that escapes a part of a translation for the markup of its document."""
Read = Callable[[Span], str]
"""Function that returns the text of a span of the document, such as a tag, in which attributes are already
translated.
"""


def place(
    sentence: str,
    items: Sequence[Item],
    translation: str,
    links: Sequence[tuple[Span, Span]],
    write: Write,
    read: Read,
    insert_breaks: bool = True,
) -> Placed:
    """Return a translation with the tags, placeholders and line breaks of its sentence.

    Args:
        links: characters of the sentence, and characters of the translation that come from them.
        insert_breaks: whether all line breaks are inserted. If not, and the translation has fewer spaces than the
            sentence has line breaks, only tags that break a line (`<br>`) are.
    """
    objects = [item for item in items if item.kind == "object"]
    found, copied = _copied(sentence, objects, translation)
    taken = [span for span in found if span]
    missing = [
        number
        for number, span in enumerate(found)
        if span is None and objects[number].span[0] < objects[number].span[1]
    ]
    for number in missing:
        span = _aligned(objects[number].span, translation, links, taken)
        if span:
            found[number] = span
            taken.append(span)
    known = {id(item): span for item, span in zip(objects, found, strict=True) if span}
    units = units_of(translation, links, [(span, item) for item, span in zip(objects, found, strict=True) if span])
    lines = [item for item in items if item.kind == "break"]
    if not insert_breaks and sum(map(str.isspace, translation)) < len(lines):
        lines = [item for item in lines if read(item.raw).strip()]
    breaks = _breaks(sentence, lines, translation, units)
    rest = [item for item in items if item.kind != "break"]
    painter = _Painter(sentence, translation, units, breaks, write, read)
    if len(rest) > MOST_ITEMS or not any(unit.votes for unit in units):
        text = painter.in_order([item for item in rest if id(item) not in known])
        tags = sum(item.kind in ("open", "point") for item in rest)
        return Placed(text, tags, copied, len(known) - copied, len(objects) - len(known))
    text = painter.by_alignment(_tree(sentence, rest))
    inserted = len(objects) - len(known)
    guessed = painter.guessed_objects
    return Placed(text, painter.guessed_tags, copied, len(known) - copied + inserted - guessed, guessed)


def _copied(sentence: str, objects: Sequence[Item], translation: str) -> tuple[list[Span | None], int]:
    """Return where each placeholder's stand-in is in the translation, and how many were found.

    If a stand-in occurs more or fewer times in the translation than it has placeholders in the sentence, the spans of
    all these placeholders are None.
    """
    found: list[Span | None] = [None] * len(objects)
    by_word: dict[str, list[int]] = {}
    for number, item in enumerate(objects):
        by_word.setdefault(sentence[slice(*item.span)], []).append(number)
    for word, numbers in by_word.items():
        places = _occurrences(translation, word) if word else []
        if len(places) == len(numbers):
            for number, start in zip(numbers, places, strict=True):
                found[number] = start, start + len(word)
    return found, sum(span is not None for span in found)


def _occurrences(text: str, word: str) -> list[int]:
    """Return the indices at which a word occurs without a letter or digit directly beside it.

    Letters from U+0E00 on (Thai, Chinese, Japanese, Korean) do not count: such text has no space there.
    """
    found = []
    at = text.find(word)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(word) : at + len(word) + 1]
        if not any(each.isalnum() and each < "\u0e00" for each in (before, after) if each):
            found.append(at)
        at = text.find(word, at + len(word))
    return found


def _aligned(source: Span, translation: str, links: Sequence[tuple[Span, Span]], taken: Sequence[Span]) -> Span | None:
    """Return the span of the consecutive words of the translation that are best aligned with `source`, a span of the
    sentence; None if no word is. Words that overlap spans in `taken` are left out.
    """
    units = units_of(translation, links, [])
    scores = [
        -1e9
        if any(max(unit.span[0], start) < min(unit.span[1], end) for start, end in taken)
        else score(unit, source, 1.0)
        if any(map(str.isalnum, translation[slice(*unit.span)]))
        else -0.1  # quotation marks around it stay
        for unit in units
    ]
    start, end = best_run(scores)
    return (units[start].span[0], units[end - 1].span[1]) if start < end else None


def _breaks(sentence: str, items: Sequence[Item], translation: str, units: Sequence[Unit]) -> list[tuple[Span, Span]]:
    """Return, for each line break, the span of the translation that it replaces (a space, or nothing), and its span in
    the document.
    """
    pairs = list(pairwise(units))
    places = [(left.span[1], right.span[0]) for left, right in pairs if left.span[1] < right.span[0]]
    if len(places) < len(items):
        places = [(left.span[1], right.span[0]) for left, right in pairs]
    found: list[tuple[Span, Span]] = []
    first = 0
    for number, item in enumerate(items):
        if first >= len(places):
            found.append(((len(translation), len(translation)), item.raw))
            continue
        wanted = item.span[0] / max(1, len(sentence)) * len(translation)
        last = max(first + 1, len(places) - (len(items) - 1 - number))  # the others need a place, too
        chosen = min(range(first, last), key=lambda place: abs(places[place][0] - wanted))
        found.append((places[chosen], item.raw))
        first = chosen + 1
    return found


def _tree(sentence: str, items: Sequence[Item]) -> Element:
    """Return the elements of a sentence as a tree; overlapping elements are split in two."""
    root = Element((0, len(sentence)))
    stack = [root]
    opened = {item.number: item for item in items if item.kind == "open"}
    closed = {item.partner: item for item in items if item.kind == "close"}
    for item in items:
        at = item.span[0]
        if item.kind == "open":
            partner = closed.get(item.number)
            node = Element((at, len(sentence)), item.raw, partner.raw if partner else None, to_end=partner is None)
            node.item = item
            stack[-1].children.append(node)
            stack.append(node)
            continue
        if item.kind == "close":
            if item.partner not in opened and len(stack) == 1:
                root.children = [Element((0, at), None, item.raw, from_start=True, item=item, children=root.children)]
                continue
            depth = next((n for n, node in enumerate(stack) if node.item and node.item.number == item.partner), 0)
            if depth:
                again = stack[depth + 1 :]
                for node in stack[depth:]:
                    node.span = node.span[0], at
                    node.to_end = False
                del stack[depth:]
                for node in again:
                    copy = Element((at, len(sentence)), node.opening, node.closing, to_end=node.closing is None)
                    copy.item = node.item
                    stack[-1].children.append(copy)
                    stack.append(copy)
                continue
        stack[-1].children.append(
            Element(item.span, item=item._replace(kind="point") if item.kind != "object" else item)
        )
    return root


class _Painter:
    """Inserts tags and placeholders into one translation."""

    def __init__(
        self,
        sentence: str,
        translation: str,
        units: Sequence[Unit],
        breaks: list[tuple[Span, Span]],
        write: Write,
        read: Read,
    ) -> None:
        self._sentence, self._translation, self._units = sentence, translation, units
        self._breaks = breaks
        self._write, self._read = write, read
        self._words = word_spans(sentence)
        self.guessed_tags = 0
        self.guessed_objects = 0
        self._done: set[Span] = set()
        self._objects = [(unit.span, unit.item.raw) for unit in units if unit.item]
        self._units_of_word: list[list[int]] = [[] for _ in self._words]
        for number, unit in enumerate(units):
            for vote in unit.votes:
                word = bisect_right(self._words, vote, key=lambda word: word[0]) - 1
                if word >= 0 and vote < self._words[word][1]:
                    self._units_of_word[word].append(number)
        self._unit_of = {id(unit.item): number for number, unit in enumerate(units) if unit.item}

    # --- in the order of the sentence ---------------------------------------------------------------------------------

    def in_order(self, items: Sequence[Item]) -> str:
        """Return the translation with tags and placeholders in their original order, at proportional positions."""
        edges = [0, *(unit.span[1] for unit in self._units)]
        starts = [*(unit.span[0] for unit in self._units), len(self._translation)]
        said: list[str] = []
        at = place = 0
        for item in items:
            share = item.span[0] / max(1, len(self._sentence)) * len(self._units)
            place = max(place, min(len(self._units), round(share)))
            to = max(at, edges[place] if item.kind == "close" else starts[place])
            if item.kind == "object":
                to = max(at, edges[place])
            said.append(self._text(at, to))
            said.append(self._inserted(item, to) if item.kind == "object" else self._read(item.raw))
            at = to
        said.append(self._text(at, len(self._translation)))
        return "".join(said)

    # --- by alignment -------------------------------------------------------------------------------------------------

    def by_alignment(self, root: Element) -> str:
        """Return the translation with every element around the words that are aligned with its content."""
        self._arrange(root, 0, len(self._units))
        return self._painted(root, 0, len(self._translation))

    def _arrange(self, node: Element, low: int, high: int) -> None:
        """Choose the units for everything inside an element, whose own units are those from `low` to before `high`."""
        elements = [child for child in node.children if child.opening or child.closing]
        leaves = [child for child in node.children if not (child.opening or child.closing)]
        taken = [False] * (high - low)
        for leaf in leaves:
            place = self._unit_of.get(id(leaf.item))
            if place is not None and low <= place < high:
                leaf.window = place, place + 1
                taken[place - low] = True
            elif place is not None:  # it stands outside of its element, where it is written with the words around it
                node.children.remove(leaf)
        leaves = [leaf for leaf in leaves if leaf in node.children]
        rank = {id(child): self._rank(child, low, high) for child in elements}
        for child in sorted(elements, key=lambda child: rank[id(child)]):
            child.window = self._window(child, node, low, high, taken)
            for place in range(*child.window):
                taken[place - low] = True
        windows = [child.window for child in node.children if child.window[0] < child.window[1]]
        for leaf in leaves:
            if leaf.window[0] < leaf.window[1]:
                continue
            assert leaf.item
            edge, is_known = self._edge(leaf.span, low, high) if low < high else (low, node.is_known)
            self.guessed_tags += not is_known and leaf.item.kind != "object"
            self.guessed_objects += not is_known and leaf.item.kind == "object"
            leaf.window = (self._outside(edge, windows),) * 2
        for child in elements:
            self._arrange(child, *child.window)

    def _rank(self, node: Element, low: int, high: int) -> tuple[bool, bool, bool, float]:
        votes = sum(max(0.0, score(unit, node.span, 0.0)) for unit in self._units[low:high])
        return not node.from_start, not node.to_end, not votes, votes  # what has few words takes its own first

    def _window(self, node: Element, parent: Element, low: int, high: int, taken: Sequence[bool]) -> Span:
        scores = [
            -1e9 if is_taken else score(unit, node.span, 1.0)
            for unit, is_taken in zip(self._units[low:high], taken, strict=True)
        ]
        if node.from_start and node.to_end:
            return low, high
        if node.from_start or node.to_end:
            free = next((n for n, each in enumerate(taken if node.from_start else reversed(taken)) if each), len(taken))
            run = scores[:free] if node.from_start else scores[::-1][:free]
            sums = [0.0]
            for each in run:
                sums.append(sums[-1] + each)
            length = sums.index(max(sums))
            return (low, low + length) if node.from_start else (high - length, high)
        start, end = best_run(scores)
        if start < end:
            return low + start, low + end
        has_words = any(each.isalnum() for each in self._sentence[slice(*node.span)])
        edge, is_known = self._edge(node.span, low, high) if low < high else (low, parent.is_known)
        node.is_known = is_known
        self.guessed_tags += not is_known
        for place in (edge, edge - 1) if has_words else ():
            if low <= place < high and not taken[place - low]:
                return place, place + 1
        blocked = [(low + n, low + n + 1) for n, is_taken in enumerate(taken) if is_taken]
        return (self._outside(edge, _merged(blocked)),) * 2

    @staticmethod
    def _outside(edge: int, windows: Sequence[Span]) -> int:
        for start, end in windows:
            if start < edge < end:
                return start if edge - start <= end - edge else end
        return edge

    def _edge(self, span: Span, low: int, high: int) -> tuple[int, bool]:
        """Return the index of the unit before which an empty element belongs, and whether a word link determined it."""
        words = self._words
        right = bisect_left(words, span[1], key=lambda word: word[0])
        left = bisect_right(words, span[0], key=lambda word: word[1]) - 1
        touches_right = right < len(words) and words[right][0] == span[1] and span[0] > 0
        touches_left = left >= 0 and words[left][1] == span[0]
        for far in range(FAR):
            sides = [(left - far, True), (right + far, False)]
            if touches_right and not touches_left:
                sides.reverse()
            for number, is_left in sides:
                if 0 <= number < len(words):
                    units = [place for place in self._units_of_word[number] if low <= place < high]
                    if units:
                        return (max(units) + 1 if is_left else min(units)), True
        share = span[0] / max(1, len(self._sentence))
        return min(high, low + round(share * (high - low))), False

    def _painted(self, node: Element, start: int, end: int) -> str:
        """Return the markup of the content of an element, for which the translation has the characters from `start` to
        `end`.
        """
        said: list[str] = []
        at = start
        for child in sorted(node.children, key=lambda child: child.window):
            low, high = child.window
            if low == high:
                to = min(end, max(at, self._between(child, low, start, end)))
                said += (self._text(at, to), self._leaf(child, to) if child.item else "")
                at = to
                continue
            first, last = self._units[low].span[0], self._units[high - 1].span[1]
            first, last = max(at, start if child.from_start else first), end if child.to_end else last
            said.append(self._text(at, first))
            said.append(self._leaf(child, first, first, last))
            at = last
        said.append(self._text(at, end))
        return "".join(said)

    def _between(self, node: Element, place: int, start: int, end: int) -> int:
        """Return the index in the translation at which an empty element that belongs before unit `place` is
        inserted.
        """
        item = node.item
        left = self._units[place - 1].span[1] if place else start
        right = self._units[place].span[0] if place < len(self._units) else end
        if node.from_start:
            return start
        if node.to_end:
            return end
        if item is None or item.kind == "object":
            return left
        return right if item.blank_before or not place else left

    def _leaf(self, node: Element, at: int, start: int = 0, end: int = 0) -> str:
        """Return the markup of a node at `at`: an element around `start` to `end`, a tag or a placeholder."""
        if node.opening or node.closing:
            opening = self._read(node.opening) if node.opening else ""
            closing = self._read(node.closing) if node.closing else ""
            return opening + self._painted(node, start or at, end or at) + closing
        assert node.item
        if node.item.kind != "object":
            return self._read(node.item.raw)
        return self._read(node.item.raw) if node.window[0] < node.window[1] else self._inserted(node.item, at)

    def _inserted(self, item: Item, at: int) -> str:
        """Return a placeholder for which the translation has no word, with spaces around it where the sentence had
        them.
        """
        before, after = self._translation[at - 1 : at], self._translation[at : at + 1]
        blank_before = item.blank_before and before and not before.isspace()
        blank_after = item.blank_after and after and not after.isspace() and after.isalnum()
        return f"{' ' if blank_before else ''}{self._read(item.raw)}{' ' if blank_after else ''}"

    def _text(self, start: int, end: int) -> str:
        """Return a part of the translation, escaped, with line breaks and placeholders put in their places."""
        said: list[str] = []
        changes = [
            (span, raw) for span, raw in self._breaks if start <= span[0] and span[1] <= end and raw not in self._done
        ]
        self._done.update(raw for _, raw in changes)
        changes += [(span, raw) for span, raw in self._objects if start <= span[0] and span[1] <= end]
        for (first, last), raw in sorted(changes):
            if first >= start:
                said += (self._write(self._translation[start:first]), self._read(raw))
                start = last
        said.append(self._write(self._translation[start:end]))
        return "".join(said)


def _merged(spans: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    for start, end in spans:
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], end
        else:
            found.append((start, end))
    return found
