"""One self-contained page about one translation: template, style, scripts and numbers in a single file.

`parts` divides the contents into named parts. The page requests each part by name, so that a server can send them
one by one to the same scripts.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from seq2see import special
from seq2see.bundle import Bundle
from seq2see.config import Model, Settings, model_in_words
from seq2see.decoding import search
from seq2see.decoding.torch_engine import TorchEngine
from seq2see.errors import DataError, TooLongError, nearest
from seq2see.lens import answers
from seq2see.lens.alignment import Method, importance
from seq2see.lens.answers import Look
from seq2see.lens.capture import capture, points
from seq2see.lens.heads import Head, switched_off
from seq2see.lens.intervention import Change, Tokens, contrast, patch
from seq2see.lens.reading import ATTENTIONS, Reading, Watch, decoded, read
from seq2see.look import files
from seq2see.model.recurrent import AdditiveAttention, AlignmentAttention
from seq2see.pictures import labels
from seq2see.text.pair import Sides
from seq2see.tokens.store import Tokenizers

LONGEST = 128
"""Maximum number of tokens of the source, and of the translation, on a page; longer ones are refused. A page is
responsive up to 60 tokens, and its size grows with the square of their number.
"""


class Translates(Protocol):
    """Protocol with the methods of a run that a page needs (`run.Run` itself imports this module for notebooks)."""

    folder: Path
    manifest: dict[str, Any]
    watch: Watch

    @property
    def settings(self) -> Settings: ...
    @property
    def tokenizers(self) -> Tokenizers: ...
    @property
    def languages(self) -> Sides: ...
    @property
    def bundle(self) -> Bundle: ...
    @property
    def alignment_method(self) -> Method: ...
    def tagged(self, lines: Sequence[str], to: str | None = None) -> list[str]: ...


def gather(run: Translates, sentence: str, to: str | None = None, target: str | None = None) -> dict[str, Any]:
    """Translate a sentence, or take `target` as its translation, and return all parts of the page by name."""
    inside = Inside(run, sentence, to, target)
    return {name: inside.part(name) for name in inside.names}


class Inside:
    """The parts of a page; parts that take long are computed when they are first requested.

    Args:
        to: target language, for a run that has several.
        target: a translation to explain instead of that of the model.
        engine: an engine of the run that is used again; by default a new one.
        without: attention heads that are switched off.
        prefix: ids of tokens with which the translation must begin.
    """

    def __init__(
        self,
        run: Translates,
        sentence: str,
        to: str | None = None,
        target: str | None = None,
        engine: TorchEngine | None = None,
        without: Sequence[Head] = (),
        prefix: Sequence[int] = (),
    ) -> None:
        self._run = run
        self._without = without
        if set(prefix) - set(range(len(run.tokenizers.target))) or {*search.NEVER, special.END} & set(prefix):
            raise DataError("prefix: expected ids of target tokens, without those of padding, begin and end")
        line = run.tagged([sentence], to)[0]
        # Checked before the search, which takes long for a long sentence.
        most = run.settings.model.longest
        source_tokens = len(run.tokenizers.source.encode([line.strip()])[0]) + 1
        _check_length("the sentence", min(source_tokens, run.settings.decoding.max_source, most), "Shorten it")
        if target is not None:
            target_tokens = len(run.tokenizers.target.encode([target.strip()])[0]) + 1
            _check_length("the given translation", min(target_tokens, most), "Shorten it")
        engine = engine or TorchEngine(run.bundle.model)
        with switched_off(engine.model, without):
            self._reading = read(run.bundle, line, target, engine, prefix)
        self.tokens = len(self._reading.source_ids) + len(self._reading.target_ids)
        _check_length("the translation", len(self._reading.target_ids), "Shorten the sentence")
        # Before any is switched off: heads may still have to be chosen.
        method = run.alignment_method if run.settings.model.attention else None
        with switched_off(run.bundle.model, without):
            self.look = answers.look(run.bundle, self._reading, method)
        self._parts = parts(run, self.look, own_translation=None if target is None else self._reading.own_translation)
        self._parts["summary"]["target_ids"] = self._reading.target_ids[:-1]
        self._parts["summary"]["points"] = patch_points(run.bundle)
        layers = self._parts["summary"]["layers"]
        self._late = ["importance", *(f"inside/{place}/{layer}" for place in layers for layer in range(layers[place]))]

    @property
    def names(self) -> list[str]:
        return [*self._parts, *(name for name in self._late if name not in self._parts)]

    def part(self, name: str) -> Any:
        if name not in self._parts and name in self._late:
            with switched_off(self._run.bundle.model, self._without):
                if name == "importance":
                    found = importance(self._run.bundle, self._reading, self._run.watch)
                    self._parts[name] = {each: rounded(getattr(found, each), 3) for each in ("left_out", "gradient")}
                else:
                    inside = queries_and_keys(self._run.bundle, self._reading)
                    self._parts |= {f"inside/{place}": vectors for place, vectors in inside.items()}
        if name not in self._parts:
            raise DataError(f"the page has no part '{name[:40]}'. {nearest(name[:40], self.names)}")
        return self._parts[name]

    def patch(self, donor: "Inside", name: str, tokens: Tokens = None, donor_tokens: Tokens = None) -> dict[str, Any]:
        """Translate again with the activations `name` replaced by those of another sentence, `donor`; return JSON data.

        Args:
            name: name of the activations, as in `lens.capture`.
            tokens: positions whose activations are replaced; by default all.
            donor_tokens: positions in `donor` whose activations replace them; by default the same positions.
        """
        change, bundle = Change(name, tokens, donor._reading, donor_tokens), self._run.bundle
        with switched_off(bundle.model, self._without):
            found = patch(bundle, self._reading, change, lambda _: self._run.watch("translating again", 0, 1))
        return found.json() | {"target_tokens": labels.of(found.target_tokens)}

    def contrast(self, that: str | None = None, at: tuple[int, int] | None = None) -> dict[str, Any]:
        """Compare this translation with another where the two first differ; return the `Contrast` as JSON data.

        Args:
            that: the other translation.
            at: instead of `that`, a position in this translation, and the id of another token there.
        """
        bundle, ids = self._run.bundle, self._reading.target_ids
        if at is not None:
            place, token = at
            if place >= len(ids):
                raise DataError(f"position: expected a number from 0 to {len(ids) - 1}, not {place}")
            if token >= len(bundle.tokenizers.target) or token in search.NEVER:
                raise DataError(f"token: {token} is not the id of a token that an output may have")
            other = [*ids[:place], token]
        else:
            other = [*bundle.tokenizers.target.encode([(that or "").strip()])[0], special.END]
            _check_length("the other translation", len(other), "Shorten it")
        with switched_off(bundle.model, self._without):
            found = contrast(bundle, self._reading, other, self._run.watch)
        prefix = labels.of([*found.prefix, found.this])
        shown = {"source_tokens": labels.of(found.source_tokens), "prefix": prefix[:-1], "this": prefix[-1]}
        return found.json() | shown | {"that": labels.visible(found.that)}


def patch_points(bundle: Bundle) -> dict[str, list[str]]:
    """Return the names of activations that the live page can change, by the side (source, target) of their tokens."""
    known = {name for name, *_ in points(bundle)}
    found = {}
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        names = [f"{side}_embedding.with_positions", *answers.layer_outputs(bundle, stack), f"{stack}_norm"]
        found[side] = [name for name in names if name in known]
    return found


def _check_length(what: str, tokens: int, advice: str) -> None:
    """Raise an error if there are too many tokens; its advice is for the command line, Python and HTTP alike."""
    if tokens > LONGEST:
        raise TooLongError(f"{what} has {tokens} tokens: at most {LONGEST} can be shown. {advice}", tokens, LONGEST)


def queries_and_keys(bundle: Bundle, reading: Reading) -> dict[str, Any]:
    """Return the queries and keys of each attention, `{"cross/0": {"query": HTK, "key": HSK}}`, by kind and layer.

    The scores of additive attention are v . tanh(query + key): its entry also has `"v": K`. Other attention of an RNN
    has `"unscaled": true`, since its scores are not divided by sqrt(K).
    """
    with torch.inference_mode(), capture(bundle.model, lambda name: name.endswith((".query", ".key"))) as seen:
        decoded(bundle, [reading.source_ids], [reading.target_ids])
    found: dict[str, Any] = {}
    for place, (layers, _) in bundle.settings.model.attention.items():
        for layer in range(layers):
            name = f"{ATTENTIONS[place][0]}.{layer}.{ATTENTIONS[place][1]}"
            found[f"{place}/{layer}"] = {
                each: rounded(seen[f"{name}.{each}"][0][0].float().numpy(), 3) for each in ("query", "key")
            }
            attention = bundle.model.get_submodule(name)
            if isinstance(attention, AdditiveAttention):
                found[f"{place}/{layer}"]["v"] = rounded(attention.v.detach().float().cpu().numpy(), 3)
            elif isinstance(attention, AlignmentAttention):
                found[f"{place}/{layer}"]["unscaled"] = True
    return found


def rounded(values: NDArray[np.floating[Any]], digits: int) -> Any:
    """Return an array as nested lists, rounded to `digits` decimals, since numbers are most of the size of a page."""
    return (values.astype(np.float64).round(digits) + 0.0).tolist()  # and no -0.0


def parts(run: Translates, look: Look, own_translation: str | None = None) -> dict[str, Any]:
    """Return the parts of the page by name, except `importance` and `inside/`, which take long.

    Args:
        own_translation: the model's own output, if the translation was given by the user; else None.
    """
    settings = run.settings
    found = {name: getattr(look, name).json() for name in ("confidence", "layers")}
    said = labels.of(look.target_tokens)
    ranks, rows = look.layers.rank, [*found["layers"]["candidates"], found["confidence"]["candidates"]]
    for rank, row in zip([*ranks, ranks[-1]], rows, strict=True):  # the last layer's token is the output
        for step, candidates in enumerate(row):
            for number, each in enumerate(candidates, start=1):
                each["token"] = said[step] if number == rank[step] else labels.visible(each["token"])
    given: dict[str, Any] = {
        "summary": {
            "source": look.source,
            "translation": look.translation,
            "source_tokens": labels.of(look.source_tokens),
            "target_tokens": said,
            "input_tokens": labels.of(look.input_tokens),
            "source_spans": look.source_spans,
            "target_spans": look.target_spans,
            "run": run.folder.name,
            "parameters": run.manifest.get("parameters", 0),
            "languages": {"source": run.languages.source, "target": run.languages.target},
            "model": asdict(settings.model),
            "model_in_words": model_in_words(settings.model),
            "decoding": asdict(settings.decoding),
            "layers": {place: len(getattr(look, place)) for place in ATTENTIONS},
            "vectors": _vector_groups(settings.model, list(look.vectors)),
            "forced": own_translation is not None,
            "own_translation": own_translation,
            "notes": look.notes,
            "alignment": {**look.method.json(), "is_weak": look.method.is_weak, "in_words": look.method.in_words},
        },
        "candidates": found["confidence"],
        "layers": found["layers"],
        "alignment": [{"source": source, "target": target} for source, target in look.linked],
        "beam": look.beam.json(),
    }
    for place in ATTENTIONS:
        for layer, weights_HLM in enumerate(getattr(look, place)):
            given[f"attention/{place}/{layer}"] = rounded(weights_HLM, 4)
    vectors = dict(look.vectors)
    for side in ("source", "target"):
        before, after = (vectors[f"{side}_embedding.{each}_positions"] for each in ("without", "with"))
        vectors[f"{side}_embedding.positions"] = after - before
    for name, values in vectors.items():
        given[f"vectors/{name}"] = rounded(values, 3)
    return given


def _vector_groups(model: Model, names: list[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the groups of vectors that the page draws, with their titles: embeddings, and outputs of layers."""
    embedding = []
    kind = "learned" if model.architecture == "convolutional" else model.positions
    waves = {"sinusoid": "the positional encoding", "learned": "the positions"}.get(kind)
    for side, title in (("source", "source"), ("target", "input of the decoder")):
        kinds = {"without_positions": "the tokens"}
        if waves and not model.architecture.startswith("rnn"):
            kinds |= {"positions": waves, "with_positions": "their sum"}
        choices = [{"name": f"{side}_embedding.{kind}", "side": side, "label": label} for kind, label in kinds.items()]
        embedding.append({"title": title, "choices": choices})
    layers = []
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        found = [name for name in names if name.startswith(f"{stack}.")]
        choices = [{"name": name, "side": side, "label": f"layer {number}"} for number, name in enumerate(found, 1)]
        layers.append({"title": stack, "choices": choices})
    return {"embedding": embedding, "layers": layers}


def render(given: dict[str, Any], sections: str = "sections.html", start: str = "start.js") -> str:
    """Return the page with the parts `given` as one HTML text that loads no other file.

    Args:
        given: the parts by name.
        sections: name of the file with the contents between heading and footer.
        start: name of the script that draws the page.
    """
    page = files.in_language(files.read("page.html")).replace("<!-- sections -->", files.read(sections))
    page = page.replace("/* style */", files.style())
    page = page.replace("/* script */", files.script(files.read(start)))
    return page.replace("<!-- parts -->", blocks(given))


def blocks(given: dict[str, Any]) -> str:
    """Return parts as HTML elements with JSON data and ids `part:NAME`, which the script of the page reads."""
    found = []
    for name, value in given.items():
        # A "<" in a sentence could end the element.
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        found.append(f'<script type="application/json" id="part:{name}">{text}</script>')
    return "\n".join(found)
