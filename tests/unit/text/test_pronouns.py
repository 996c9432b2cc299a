"""The pronoun of the German corpus follows its referent; that of the Finnish control never changes."""

import pytest

from seq2see.text import corpora, downloads, pronouns
from seq2see.text.pair import Sides


def test_the_pronoun_follows_its_referent():
    by_text = {each.english: each for split in pronouns.SIZES for each in pronouns.sentences(split)}
    tired = by_text["The animal did not cross the street because it was too tired."]
    wide = by_text["The animal did not cross the street because it was too wide."]
    assert tired.de == "Das Tier überquerte die Straße nicht, weil es zu müde war."
    assert wide.de == "Das Tier überquerte die Straße nicht, weil sie zu breit war."
    assert (tired.referent, tired.other, wide.referent) == ("animal", "street", "street")
    assert tired.fi == "Eläin ei ylittänyt katua, koska se oli liian väsynyt."


def test_the_splits_are_disjoint_and_as_large_as_stated():
    texts = {split: [each.english for each in pronouns.sentences(split)] for split in pronouns.SIZES}
    assert {split: len(each) for split, each in texts.items()} == pronouns.SIZES
    together = [text for each in texts.values() for text in each]
    assert len(set(together)) == len(together)


def test_all_three_genders_are_about_as_frequent_and_the_control_has_one_pronoun():
    german = [pair.target.split("weil ")[1].split()[0] for pair in pronouns.pairs("pronouns", "test")]
    assert set(german) == {"er", "sie", "es"}
    assert min(german.count(word) for word in ("er", "sie", "es")) > 100
    assert all(" se oli " in pair.target for pair in pronouns.pairs("pronouns-fi", "test"))


@pytest.mark.parametrize(("name", "language"), pronouns.LANGUAGES.items())
def test_the_corpora_have_names(name, language):
    corpus = corpora.open_corpus(name)
    assert corpus.name == name
    assert corpus.train.languages == Sides("en", language)
    assert len(list(corpora.for_scoring(name))) == 500
    assert name in [entry.name for entry in downloads.catalogue()]
    assert downloads.get(name) is None
