"""Split HTML and XML documents into tags, comments and text, and into the flows of text between block elements.

The scanner keeps every character, works in linear time, and accepts anything: markup that is not well-formed becomes
text or a tag, as in browsers. The standard library's parser is not used, since it takes quadratic time on some
documents in Python 3.11 and does not report the positions of entities.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from seq2see.documents.flows import Mark, TextFlow

Dialect = Literal["html", "xml"]
CROSSING = 8
"""Number of innermost open elements among which the end tag of an inline HTML element finds its start tag, since inline
elements may overlap (`<b><i></b></i>`). An end tag without a start tag among them is a tag without partner.
"""

_BLOCKS = frozenset(
    """
    address article aside base blockquote body caption center col colgroup dd details dialog dir div dl dt fieldset
    figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html label legend li link
    main menu meta nav noscript object ol optgroup option p param pre script section select source style summary
    table tbody td template textarea tfoot th thead title tr track ul video audio canvas iframe svg math
    """.split()  # noqa: SIM905
)
_VOID = frozenset(
    (
        "area",
        "base",
        "br",
        "col",
        "embed",
        "frame",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    )
)
_KEPT = frozenset(
    (
        "code",
        "kbd",
        "samp",
        "var",
        "pre",
        "script",
        "style",
        "textarea",
        "svg",
        "math",
    )
)
_RAW_TEXT = frozenset(("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"))
_TRANSLATED = frozenset(("alt", "title", "placeholder", "aria-label"))

_TAG = re.compile(r"""</?[A-Za-z_][^\s/>]*+(?:=\s*+(?:"[^"]*+"|'[^']*+')|[^>])*+>""")
_NAME = re.compile(r"</?([A-Za-z_][^\s/>]*+)")
_ATTRIBUTE = re.compile(r"""[\s/]([^\s=>"'/]+)(?:\s*+=\s*+(?:"([^"]*)"|'([^']*)'|([^\s>"']+)))?""")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_XML_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'"}
_HTML = re.compile(
    r"<!doctype\s+html|<html[\s>]|</(?:p|div|span|a|b|i|em|strong|li|ul|ol|h[1-6]|td|th|tr|table|body|u|code|q|sup|sub)>"
    r"|<(?:br|hr|img|p)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Elements:
    """Names of elements, in lower case, whose treatment differs from the default of HTML or XML."""

    inline: frozenset[str] = frozenset()
    """Names of elements that do not end a sentence."""
    block: frozenset[str] = frozenset()
    """Names of elements at whose start and end a sentence ends."""
    kept: frozenset[str] = frozenset()
    """Names of elements whose content is not translated but kept unchanged."""


class Token(NamedTuple):
    """One part of a document: a tag, text, or something kept unchanged (a comment, a declaration, an element that is
    not translated).
    """

    kind: Literal["text", "open", "close", "empty", "kept"]
    start: int
    end: int
    name: str = ""
    """Name of the element, in lower case in HTML; "" for text, comments and declarations."""
    number: int = -1
    partner: int = -1


def detect(text: str) -> Literal["plain", "html", "xml"]:
    """Guess the format: after an XML declaration at the start, HTML if there is `<html>`, else XML; otherwise HTML if
    there are common HTML tags, else plain.
    """
    if text.lstrip("\ufeff \t\r\n").startswith("<?xml"):
        return "html" if re.search(r"<html[\s>]", text[:2000], re.IGNORECASE) else "xml"
    return "html" if _HTML.search(text) else "plain"


def escape(text: str, dialect: Dialect, quoted: bool = False) -> str:
    """Return a text escaped for HTML or XML; with `quoted`, quotation marks, too.

    No-break spaces are written as entities, so that they can be seen.
    """
    return html.escape(text, quote=quoted).replace("\xa0", "&nbsp;" if dialect == "html" else "&#160;")


def scan(document: str, dialect: Dialect, elements: Elements) -> list[Token]:
    """Return the parts of a document in order; joined, they are the whole document."""
    found: list[Token] = []
    at = text_from = 0
    hidden: Token | None = None  # the opening tag of an element that is kept
    depth = 0

    def add(kind: Literal["open", "close", "empty", "kept"], start: int, end: int, name: str = "") -> None:
        nonlocal text_from
        if hidden is None:
            if text_from < start:
                found.append(Token("text", text_from, start))
            found.append(Token(kind, start, end, name))
            text_from = end

    while (at := document.find("<", at)) >= 0:
        if document.startswith(("<!", "<?"), at):
            end = _declaration_end(document, at)
            add("kept", at, end)
            at = end
            continue
        if not _NAME.match(document, at):
            at += 1
            continue
        tag = _TAG.match(document, at)
        if tag is None:  # it never ends: the rest is text
            break
        end = tag.end()
        name, closes, is_empty = _kind(document, at, end, dialect)
        if hidden is not None:
            if name == hidden.name and not is_empty:
                depth += -1 if closes else 1
                if not depth:
                    start, hidden = hidden.start, None
                    add("kept", start, end, name)
        elif not closes and not is_empty and _is_kept(document[at:end], name, dialect, elements):
            if text_from < at:
                found.append(Token("text", text_from, at))
            hidden, depth, text_from = Token("open", at, end, name), 1, end
        else:
            add("close" if closes else "empty" if is_empty else "open", at, end, name)
        if not closes and dialect == "html" and name in _RAW_TEXT and name != "title":
            close = re.compile(rf"</{name}[\s/>]", re.IGNORECASE).search(document, end)
            at = close.start() if close else len(document)
        else:
            at = end
    if hidden is not None:  # it was never closed
        found.append(Token("kept", hidden.start, len(document), hidden.name))
    elif text_from < len(document):
        found.append(Token("text", text_from, len(document)))
    return found


def _declaration_end(document: str, at: int) -> int:
    """Return the end of the comment, declaration or CDATA that begins at index `at`; if not closed, of the document."""
    for opening, closing in (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"), ("<!", ">")):
        if document.startswith(opening, at):
            end = document.find(closing, at + len(opening))
            return end + len(closing) if end >= 0 else len(document)
    raise AssertionError("not a declaration")


def _kind(document: str, start: int, end: int, dialect: Dialect) -> tuple[str, bool, bool]:
    """Return the name of the tag from `start` to `end`, whether it is an end tag, and whether its element is empty."""
    found = _NAME.match(document, start)
    assert found
    name = found[1].lower() if dialect == "html" else found[1]
    closes = document[start + 1] == "/"
    is_empty = not closes and (document[end - 2] == "/" or (dialect == "html" and name in _VOID))
    return name, closes, is_empty


def _is_kept(tag: str, name: str, dialect: Dialect, elements: Elements) -> bool:
    """Return whether the content of an element is not translated: by its name, `translate="no"`, or the class
    `notranslate` in HTML.
    """
    if name.lower() in elements.kept or (dialect == "html" and name in _KEPT):
        return True
    if "translate" not in tag.lower():
        return False
    for attribute in _ATTRIBUTE.finditer(tag):
        value = attribute[2] or attribute[3] or attribute[4] or ""
        if attribute[1].lower() == "translate" and value.lower() == "no":
            return True
        if dialect == "html" and attribute[1].lower() == "class" and "notranslate" in value.split():
            return True
    return False


def paired(
    document: str, tokens: list[Token], dialect: Dialect, elements: Elements
) -> tuple[list[Token], frozenset[int]]:
    """Return the tokens with their tags numbered and each linked to its partner, and the numbers of inline tags.

    Inline elements of HTML may overlap: `<b>one <i>two</b> three</i>`. Any other end tag also closes everything inside
    its element. In XML, an element is inline by default if its parent element has text of its own.
    """
    found = list(tokens)
    stack: list[int] = []
    opened: dict[str, int] = {}
    mixed: set[int] = set()  # elements of XML that have text of their own; -1: the document
    around: dict[int, int] = {}
    for number, token in enumerate(tokens):
        found[number] = token._replace(number=number)
        if token.kind != "text":
            around[number] = stack[-1] if stack else -1
        match token.kind:
            case "text":
                if dialect == "xml" and not document[token.start : token.end].isspace():
                    mixed.add(stack[-1] if stack else -1)
            case "open":
                stack.append(number)
                opened[token.name] = opened.get(token.name, 0) + 1
            case "close" if opened.get(token.name):
                is_inline = dialect == "html" and token.name not in _BLOCKS
                place = _place_of(tokens, stack, token.name, CROSSING if is_inline else len(stack))
                if place is None:
                    continue
                other = stack[place]
                closed = stack[place : place + 1] if is_inline else stack[place:]
                del stack[place : place + 1 if is_inline else len(stack)]
                for each in closed:
                    opened[tokens[each].name] -= 1
                found[number] = found[number]._replace(partner=other)
                found[other] = found[other]._replace(partner=number)
                around[number] = around[other]
    inline = frozenset(
        number for number in around if _is_inline(tokens[number], dialect, elements, around[number] in mixed)
    )
    return found, inline


def _place_of(tokens: list[Token], stack: list[int], name: str, most: int) -> int | None:
    for place in range(len(stack) - 1, max(-1, len(stack) - 1 - most), -1):
        if tokens[stack[place]].name == name:
            return place
    return None


def _is_inline(token: Token, dialect: Dialect, elements: Elements, in_text: bool) -> bool:
    name = token.name.lower()
    if name in elements.inline:
        return True
    if name in elements.block:
        return False
    return (name not in _BLOCKS) if dialect == "html" else in_text


def flows(document: str, dialect: Dialect, elements: Elements, protect: bool) -> tuple[list[TextFlow], list[TextFlow]]:
    """Return the flows of the text of a document, and those of attributes that readers see (only in HTML), each in
    order.

    With `protect`, placeholders in them are replaced by `OBJECT`.
    """
    tokens, inline = paired(document, scan(document, dialect, elements), dialect, elements)
    found: list[TextFlow] = []
    attributes: list[TextFlow] = []
    flow = TextFlow()

    def finish() -> None:
        nonlocal flow
        found.append(flow.finish(protect))
        flow = TextFlow()

    for number, token in enumerate(tokens):
        if token.kind == "text":
            _add_text(flow, document, token.start, token.end, dialect)
            continue
        if dialect == "html" and token.kind in ("open", "empty"):
            attributes += _attributes(document, token, protect)
        is_inline = number in inline or not token.name  # comments are inline
        if token.name == "br" and dialect == "html" and "br" not in elements.inline:
            is_inline = _goes_on(document, tokens, number)
        if not is_inline:
            finish()
        elif token.name == "br" and dialect == "html":
            flow.add_break(token.start, token.end, blank=True)
        elif token.kind == "kept" and token.name:
            flow.add_object(token.start, token.end)
        else:
            kind = "point" if token.kind in ("empty", "kept") or token.partner < 0 else token.kind
            mark = Mark(0, kind, (token.start, token.end), token.number, token.partner, token.name)  # type: ignore[arg-type]
            flow.add_mark(mark)
    finish()
    return found, attributes


def _goes_on(document: str, tokens: list[Token], number: int) -> bool:
    """Return whether a sentence continues after a line break, which is `tokens[number]`: whether the text after it
    begins in lower case.
    """
    for token in tokens[number + 1 : number + 4]:
        if token.kind == "text" and not (text := document[token.start : token.end]).isspace():
            return text.lstrip()[0].islower()
    return False


def _attributes(document: str, tag: Token, protect: bool) -> Iterator[TextFlow]:
    for attribute in _ATTRIBUTE.finditer(document, tag.start, tag.end):
        if attribute[1].lower() in _TRANSLATED and (group := 2 if attribute[2] else 3) and attribute[group]:
            flow = TextFlow()
            _add_text(flow, document, *attribute.span(group), "html")
            yield flow.finish(protect)


def _add_text(flow: TextFlow, document: str, start: int, end: int, dialect: Dialect) -> None:
    """Add the text of a document from `start` to `end` to a flow, with entities decoded.

    Unknown entities, and those of invisible characters, are kept as they are spelled.
    """
    for found in _ENTITY.finditer(document, start, end):
        flow.add_text(document, start, found.start())
        text = html.unescape(found[0]) if dialect == "html" or found[0][1] == "#" else _XML_ENTITIES.get(found[0], "")
        is_read = text and text != found[0] and text.replace("\xa0", "x").isprintable()
        if is_read and text != " ":
            flow.add_literal(text, *found.span())
        elif text == " ":
            flow.add_blanks(document, *found.span())
        else:
            flow.add_object(*found.span())
        start = found.end()
    flow.add_text(document, start, end)
