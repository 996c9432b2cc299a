"""A service without engines, for tests of the routes."""

import dataclasses
from collections import OrderedDict
from types import SimpleNamespace

from seq2see.config import Settings
from seq2see.documents.document import Options
from seq2see.documents.segments import Limit
from seq2see.documents.units import word_spans
from seq2see.serve.jobs import Asked, Facts
from seq2see.serve.limits import Limits
from seq2see.serve.service import Service
from seq2see.text.pair import Sides


class Shouting(Service):
    """A service whose runs write everything large, in the place of engines; each knows the letters it is given."""

    def __init__(self, letters=None, **languages):
        self.runs = {name: run(*sides) for name, sides in languages.items()}
        self.limits = Limits(texts=3, characters=200)
        self.quick = SimpleNamespace(facts={name: Facts("shout", 1.0) for name in self.runs})
        self.letters = letters or {}
        self.asked = []
        self._has_torch = True
        self.kept = OrderedDict()

    def admit(self, peer, headers, own_key=None):
        self.key = own_key
        return "somebody"

    async def translate(self, asked: Asked, client, model=None, beam=None):
        texts = asked.lines
        self.check_texts(texts)
        self.asked.append((model, texts))
        most = self.runs[model].settings.decoding.max_source
        found = [
            {"translations": [{"text": text.upper()}], "familiar": 1.0, "cut": len(text) >= most} for text in texts
        ]
        for text, each in zip(texts, found, strict=True):
            if asked.alignments:
                each["translations"][0]["alignment"] = {
                    "links": [{"source": span, "target": span} for span in word_spans(text)]
                }
        return model, "shout", found

    async def familiar(self, texts, client):
        def share(name, text):
            return sum(letter in self.letters[name] for letter in text) / max(1, len(text))

        return [
            dict(sorted({name: share(name, text) for name in self.runs}.items(), key=lambda each: -each[1]))
            for text in texts
        ]


def run(source, target, *tags, max_source=40):
    settings = Settings()
    settings = dataclasses.replace(settings, decoding=dataclasses.replace(settings.decoding, max_source=max_source))
    options = Options(source, Limit(lambda texts: [len(text) for text in texts], max_source - 1))
    return SimpleNamespace(languages=Sides(source, target), tags=list(tags), settings=settings, text_options=options)
