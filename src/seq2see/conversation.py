"""A conversation with a model: lines are cleaned before translation, and notes say if one was cut or has no answer."""

from dataclasses import replace
from typing import NamedTuple

from seq2see.config import Settings
from seq2see.decoding.translator import Result
from seq2see.run import Run
from seq2see.text.languages import matches
from seq2see.tokens.interface import Tokenizer, normal_form


class Words(NamedTuple):
    """The greeting and the notes to the user, in one language."""

    hello: str
    nothing: str
    unreadable: str
    foreign: str
    long: str
    silent: str
    line: str
    """Beginning of a note about one line of a file that is answered line by line; `{number}` is the line number."""


ENGLISH = Words(
    hello="Type a line and press Enter. Ctrl-D ends.",
    nothing="Type something, and it will be answered.",
    unreadable="Part of that was not UTF-8 and could not be read. Is the terminal set to UTF-8?",
    foreign="The model has not seen such text in training and cannot answer it. Could you put it another way?",
    long="That is longer than anything in training: of such lines only the first {limit} tokens are read.",
    silent="The model has no answer to that.",
    line="line {number}: ",
)
KOREAN = Words(
    hello="메시지를 입력하고 Enter를 누르세요. 끝내려면 Ctrl-D를 누르세요.",
    nothing="내용을 입력해 주세요.",
    unreadable="UTF-8이 아니어서 읽을 수 없는 글자가 있습니다. 터미널의 문자 인코딩을 확인해 주세요.",
    foreign="학습할 때 보지 못한 글이라 답하기 어렵습니다. 다른 말로 바꿔 주시겠어요?",
    long="학습한 것보다 긴 글은 앞의 {limit}토큰까지만 읽고 답합니다.",
    silent="이 말에는 답을 찾지 못했습니다.",
    line="{number}번째 줄: ",
)


def settings_for(settings: Settings) -> Settings:
    """Return settings that cut a line at `data.max_length` tokens, or before if `decoding.max_source` is lower."""
    most = min(settings.decoding.max_source, settings.data.max_length + 1)  # one place is for the end
    return replace(settings, decoding=replace(settings.decoding, max_source=most))


def words_for(run: Run) -> Words:
    """Return the texts in Korean if the sources of the run are Korean, else in English; `long` has the token limit."""
    code = run.languages.source
    korean = matches("ko", code) if code is not None else run.tokenizers.source.scripts[:1] == ["HANGUL"]
    words = KOREAN if korean else ENGLISH
    return words._replace(long=words.long.format(limit=settings_for(run.settings).decoding.max_source - 1))


def hear(run: Run, typed: str, words: Words) -> tuple[str, str]:
    """Return the cleaned line and an empty note; or an empty line and a note that says why it cannot be answered."""
    line = _tidy(typed, run.tokenizers.source)
    if not line:
        return "", words.nothing
    if "\ufffd" in line:
        return "", words.unreadable
    if run.tokenizers.source.familiar(line) < 0.5:
        return "", words.foreign
    return line, ""


def answer(result: Result, words: Words) -> tuple[str, str]:
    """Return the answer, and a note if the line was cut or the answer is empty; otherwise, the note is empty."""
    said = result.text.strip()
    return said, words.long if result.cut else "" if said else words.silent


def _tidy(line: str, tokenizer: Tokenizer) -> str:
    """Return a line with single spaces, in NFC, without invisible characters for which the tokenizer has no token.

    If the tokenizer knows a greater share of the line without NFC, or with these characters, that form is returned.
    """
    typed = " ".join(line.split())
    hidden = list({each for each in typed if not each.isprintable()})
    unseen = {each for each, share in zip(hidden, tokenizer.familiar_shares(hidden), strict=True) if share < 1}
    visible = "".join(each for each in typed if each not in unseen)
    forms = [normal_form("NFC", visible), visible, typed]
    shares = tokenizer.familiar_shares(forms)
    return forms[shares.index(max(shares))].strip()
