"""Tags such as `<2de>` in front of sources, by which one model serves several target languages (`train --tag`)."""

import re
from collections.abc import Iterable, Iterator, Sequence

from seq2see.errors import DataError, SettingError, nearest
from seq2see.text.pair import Pair


def language_tag(language: str) -> str:
    """Return the tag by which a source asks for a target language: `de` -> `<2de>`, "to German"."""
    return f"<2{language}>"


def noting_languages(pairs: Iterable[Pair], languages: set[str]) -> Iterator[Pair]:
    """Yield the pairs, and put the target languages that they have into `languages`."""
    for pair in pairs:
        if pair.language is None:
            raise DataError(
                f"{pair.where}: --tag needs to know the language of the target. Call parallel files x.en,x.de, "
                "or give --target-language"
            )
        if pair.language not in languages:
            if not re.fullmatch(r"[\w@.-]+", pair.language):
                raise SettingError(f"--target-language '{pair.language}': --tag needs a code such as de or pt-BR")
            languages.add(pair.language)
        yield pair


def tagged(pair: Pair, languages: Sequence[str]) -> Pair:
    """Return the pair with the tag of its target language in front of its source, where the run has `languages`."""
    if not languages:
        return pair
    if pair.language is None or pair.language not in languages:
        known = nearest(str(pair.language), languages)
        raise DataError(f"{pair.where}: no training pair is in the language '{pair.language}'. {known}")
    return pair._replace(source=f"{language_tag(pair.language)} {pair.source}")
