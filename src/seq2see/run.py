"""A trained model in its folder: translate, look inside, evaluate. Torch is imported only if it is needed."""

import contextlib
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from seq2see import bundle, config, machine, storage
from seq2see.bundle import Bundle
from seq2see.config import Place, Settings
from seq2see.decoding import ct2_engine, terms, translator
from seq2see.decoding.hypothesis import Engine
from seq2see.decoding.translator import Result
from seq2see.display import notebook
from seq2see.documents.glossary import Glossary
from seq2see.errors import DataError, RunError, SeqError, SettingError, nearest
from seq2see.evaluation import evaluations, metrics
from seq2see.evaluation.evaluations import Evaluation, error_unit
from seq2see.text.corpora import Pairs
from seq2see.text.pair import GivenPairs, Pair, Sides, pair_of, usual_sources
from seq2see.text.tags import language_tag, tag_of, with_tag
from seq2see.tokens.store import Tokenizers

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from seq2see.decoding.search import Choose
    from seq2see.documents.document import Joined, Options
    from seq2see.lens.alignment import Alignment, Importance, Method
    from seq2see.lens.answers import Look
    from seq2see.lens.heads import Head, Statistics, Worth
    from seq2see.lens.history import AttentionHistory
    from seq2see.lens.intervention import Contrast, Patched, Tokens
    from seq2see.lens.pruning import Pruning
    from seq2see.lens.reading import Reading, Watch
    from seq2see.lens.side_by_side import SideBySide
    from seq2see.lens.sublayers import Sublayer, WordInContexts
    from seq2see.model.interface import Seq2Seq


EngineName = Literal["auto", "torch", "ctranslate2"]


class Run:
    """A trained model in its run folder, to translate with, to look into and to evaluate."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = storage.read_manifest(self.folder)
        self.watch: Watch = notebook.watch()
        """Callback for progress: `watch("leaving out input tokens", 12, 60)` means 12 of 60 steps."""
        self._engines: dict[str, Engine] = {}

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.manifest.get('parameters', 0):,} parameters)"

    def _repr_html_(self) -> str:
        """Return an HTML table with the facts about this model, for a notebook."""
        model = f"{config.model_in_words(self.settings.model)}: {self.manifest.get('parameters', 0):,} parameters"
        languages = " → ".join(code or "?" for code in self.languages)
        sizes = [f"{len(each):,} tokens" for each in (self.tokenizers.source, self.tokenizers.target)]
        rows = [("model", model), ("source", sizes[0]), ("target", sizes[1])]
        rows += [("languages", languages)] if any(self.languages) else []
        return notebook.table(str(self.folder), [], rows)

    @cached_property
    def settings(self) -> Settings:
        return config.read_settings(self.folder)

    @cached_property
    def tokenizers(self) -> Tokenizers:
        return Tokenizers.load(self.folder)

    @property
    def languages(self) -> Sides:
        """Return the languages of source and target that the run names (`en`); None for one that is not known."""
        return Sides(**self.manifest.get("languages", {}))

    @property
    def tags(self) -> list[str]:
        """Return the codes of the target languages that a source can request; empty if the run has no language tags."""
        return self.settings.data.tags.split()

    def tagged(self, lines: Sequence[str], to: str | None = None) -> list[str]:
        """Put the language tag of `to` in front of lines that have no tag; blank lines stay as they are.

        Without `to`, a run with one tag uses that, a run without tags returns the lines unchanged, and a run with
        several tags raises an error unless every line has one.
        """
        known = self.tags
        if to is not None and not known:
            raise SettingError(f"--to {to}: {self.folder} was trained without --tag, for one direction. Leave --to out")
        if to is not None and to not in known:
            raise SettingError(f"--to {to}: unknown. Choose from: {', '.join(known)}")
        if to is None and len(known) == 1:
            to = known[0]
        own = (*map(language_tag, known), *self.tokenizers.source.tags)  # imports may have tags of their own
        if to is None and own and not all(tag_of(line.lstrip(), own) for line in lines if line.strip()):
            raise SettingError(f"{self.folder} translates to {', '.join(known)}: choose a language with --to")
        if to is None:
            return list(lines)
        tag = language_tag(to)
        return [line if tag_of(line.lstrip(), own) or not line.strip() else with_tag(tag, line) for line in lines]

    @cached_property
    def bundle(self) -> Bundle:
        """Return the PyTorch model with its settings and tokenizers, on the GPU if there is one."""
        return bundle.load(self.folder, machine.pick_device())

    @property
    def model(self) -> "Seq2Seq":
        """Return the PyTorch module. `with seq2see.capture(run) as seen:` records its activations."""
        return self.bundle.model

    def _is_recorded(self) -> bool:
        """Return whether the model is loaded and has forward hooks, which record or change its activations."""
        if "bundle" not in self.__dict__:  # not loaded yet, and torch may not be installed
            return False
        from seq2see.decoding.torch_engine import has_hooks

        return has_hooks(self.model)

    def _is_unseen(self, engine: Engine) -> bool:
        """Return whether an engine calls no hooks: CTranslate2, or PyTorch with a copy of the model that has none."""
        from seq2see.decoding.torch_engine import has_hooks

        own = getattr(engine, "model", None)
        if own is None:
            return engine.name.startswith("ctranslate2")
        return own is not self.model and not has_hooks(own)

    def engine(self, name: str = "auto", precision: str | None = None) -> Engine:
        """Return the engine that runs the model, PyTorch or CTranslate2.

        Args:
            name: "torch", "ctranslate2" or "auto". "auto" is ctranslate2 if there is no GPU, CTranslate2 can run the
                model, and the model has no hooks (`capture`), or if torch is not installed; else torch.
            precision: float32 (default of torch), int8 (default of ctranslate2), or bfloat16 with torch on a GPU.
        """
        if name not in get_args(EngineName):
            raise SettingError(f"--engine {name}: unknown. {nearest(name, get_args(EngineName))}")
        if name == "auto":
            ours = self._is_recorded() or ct2_engine.obstacle(self.settings) or ct2_engine.cuda_is_here()
            name = "torch" if ours and machine.has_torch() else "ctranslate2"
        precision = precision or ("float32" if name == "torch" else "int8")
        key = f"{name} {precision}"
        if key == "torch float32" and self._is_recorded():  # not kept: it is good only while the hooks are there
            return self._torch_engine(precision)
        if key not in self._engines:
            made = self._torch_engine(precision) if name == "torch" else ct2_engine.open_engine(self.folder, precision)
            self._engines[key] = made
        return self._engines[key]

    def _torch_engine(self, precision: str, choose: "Choose | None" = None) -> Engine:
        from seq2see.decoding.torch_engine import TorchEngine

        return TorchEngine(self.model, choose, precision)

    def sampler(self, choose: "Choose", precision: str = "float32") -> Engine:
        """Return a PyTorch engine that chooses each token by `choose`, for instance `decoding.search.sampling()`."""
        return self._torch_engine(precision, choose)

    def translate(
        self,
        lines: Sequence[str],
        beam: int | None = None,
        to: str | None = None,
        glossary: Glossary | None = None,
    ) -> list[str]:
        """Return the best translation of each line; an empty line stays empty.

        Args:
            glossary: terms whose translations are enforced (`seq2see.Glossary`).
        """
        return [result.text for result in self.search(lines, beam, to=to, glossary=glossary)]

    def search(
        self,
        lines: Sequence[str],
        beam: int | None = None,
        n_best: int = 1,
        prefixes: Sequence[str] | None = None,
        engine: Engine | None = None,
        to: str | None = None,
        glossary: Glossary | None = None,
    ) -> list[Result]:
        """Return up to `n_best` translations of each line, with scores and tokens.

        Args:
            prefixes: for each line, the text that its translations must begin with.
            engine: the result of `engine()` or `sampler()`; by default `engine()`.
            to: the target language, one of `tags`.
            glossary: terms whose translations are enforced; a line without terms is translated as without a glossary.
        """
        if isinstance(lines, str) or not all(isinstance(line, str) for line in lines):
            raise TypeError("translate expects a list of lines of type str, not one text: put it in [ ]")
        given, lines = lines, self.tagged(lines, to)
        engine = engine or self.engine()
        if self._is_recorded() and self._is_unseen(engine):
            raise SettingError(
                f"activations of the model are recorded, but this engine ({engine.name}) uses its own copy of it. "
                'Leave engine= out, or make it inside capture(run): run.engine("torch"); or use capture(engine)'
            )
        found = [] if glossary is None else [glossary.terms_in(line) for line in given]
        if not any(found):
            return translator.translate(
                engine, self.tokenizers, self.settings, lines, beam=beam, n_best=n_best, prefixes=prefixes
            )
        shifts = [len(line) - len(before) for before, line in zip(given, lines, strict=True)]
        return terms.translate(
            engine, self.tokenizers, self.settings, lines, found,
            beam=beam, n_best=n_best, prefixes=prefixes, shifts=shifts,
        )  # fmt: skip

    @cached_property
    def text_options(self) -> "Options":
        """Return the options by which `translate_text` splits documents and replaces placeholders."""
        from seq2see.decoding import running_text

        return running_text.options(self.settings, self.tokenizers, self.languages, lambda: self.validation_pairs)

    def translate_text(
        self,
        text: str,
        markup: str = "auto",
        beam: int | None = None,
        to: str | None = None,
        engine: Engine | None = None,
        glossary: Glossary | None = None,
    ) -> "Joined":
        """Translate the sentences of a document; the spaces between them, tags and placeholders are kept.

        `run.translate_text("<p>Click <b>here</b>.</p>").text` is the translation; `.counts` counts sentences and tags.

        Args:
            markup: `plain`, `html`, `xml`, or `auto`, which decides by the text.
        """
        from seq2see.decoding import running_text

        engine, aligns = engine or self.engine(), machine.has_torch() and self.settings.model.attention
        return running_text.translate(
            text,
            markup,
            self.text_options,
            lambda lines: self.search(lines, beam, engine=engine, to=to, glossary=glossary),
            (lambda lines, results: self.align(lines, results, to)) if aligns else None,
        )

    def look(self, sentence: str, to: str | None = None, target: str | None = None) -> "Look":
        """Return attention, vectors and probabilities of the model for a sentence and its translation (or `target`)."""
        from seq2see.lens import answers

        method = self.alignment_method if self.settings.model.attention else None
        found = answers.look(self.bundle, self.read(sentence, to, target), method)
        if notebook.is_notebook():
            from seq2see.look import page

            vars(found)["page"] = lambda: notebook.frame(page.render(page.gather(self, sentence, to, target)))
        return found

    def compare_looks(
        self, other: "Run", sentence: str, to: str | None = None, target: str | None = None
    ) -> "SideBySide":
        """Compare this run with another on one sentence; if `target` is given, both use it as the translation."""
        from seq2see.look import beside

        return beside.compare(self, other, sentence, to, target)

    def attention_history(self) -> "AttentionHistory":
        """Return the attention weights of one or two validation pairs, as recorded at validations during training."""
        from seq2see.lens import history

        self.need_attention("attention during training")
        return history.read(self.folder)

    def read(self, sentence: str, to: str | None = None, target: str | None = None) -> "Reading":
        """Return a sentence and its translation (or `target`) in tokens, as input of the functions in `lens`."""
        from seq2see.lens import reading

        for text in (sentence, "" if target is None else target):
            if not isinstance(text, str):
                raise TypeError(f"look expects one sentence, a str, not {type(text).__name__}")
        return reading.read(self.bundle, self.tagged([sentence], to)[0], target)

    def importance(
        self, sentence: str, to: str | None = None, target: str | None = None, steps: int = 0
    ) -> "Importance":
        """Return how much each output token depends on each input token: by gradient times input, by leaving the input
        token out, and if `steps` (for instance 50) is above 0, by integrated gradients at this number of points."""
        from seq2see.lens import alignment

        return alignment.importance(self.bundle, self.read(sentence, to, target), self.watch, steps)

    def sublayer(
        self, sentence: str, place: Place = "encoder", layer: int = 0, to: str | None = None, target: str | None = None
    ) -> "Sublayer":
        """Return scores, weights and other tensors of the attention `place` of a Transformer in one layer (from 0)."""
        from seq2see.lens import sublayers

        return sublayers.sublayer(self.bundle, self.read(sentence, to, target), place, layer)

    def word_in_contexts(self, word: str, first: str, second: str, to: str | None = None) -> "WordInContexts":
        """Compare a word in two sentences: its attention in the encoder, and the cosine of its two vectors by layer."""
        from seq2see.lens import sublayers

        return sublayers.word_in_contexts(word, self.look(first, to), self.look(second, to))

    def patch(
        self,
        sentence: str,
        name: str = "encoder_norm",
        *,
        donor: str | None = None,
        tokens: "Tokens" = None,
        donor_tokens: "Tokens" = None,
        value: "ArrayLike | None" = None,
        add: bool = False,
        to: str | None = None,
    ) -> "Patched":
        """Change activations inside the model while it translates a sentence; return the translations before and after.

        `run.patch("12 mars 1987", donor="12 juin 1987", tokens="mars", donor_tokens="juin")` replaces the encoder's
        output for the month. `run.patch(sentence, name, value=vector, add=True)` steers the model: it adds a vector.

        Args:
            name: which activations, as `capture` names them; by default the output of the encoder.
            donor: the sentence whose activations are used.
            tokens: the positions to change: a part of the source text (if `name` is in the decoder, of the
                translation), or numbers of tokens from 0; by default all.
            donor_tokens: as many positions in the donor; by default the same positions as in the sentence.
            value: numbers to use instead of a donor: a vector for each token, or one for all; 0 sets all to zero.
            add: add to the activations instead of replacing them.
        """
        from seq2see.lens import intervention

        other = None if donor is None else self.read(donor, to)
        change = intervention.Change(name, tokens, other, donor_tokens, value, add)
        return intervention.patch(self.bundle, self.read(sentence, to), change)

    def contrast(self, sentence: str, that: str, this: str | None = None, to: str | None = None) -> "Contrast":
        """Compare the probabilities of the model's translation (or `this`) and `that` where they first differ."""
        from seq2see.lens import intervention

        one, other = (self.read(sentence, to, target) for target in (this, that))
        return intervention.contrast(self.bundle, one, other.target_ids, self.watch)

    @property
    def metric(self) -> str:
        """Return `training.metric`, by which the best checkpoint is chosen; `bleu` if that is `loss`."""
        chosen = self.settings.training.metric
        return "bleu" if chosen == "loss" else chosen

    def head_worth(
        self,
        pairs: GivenPairs,
        groups: "Sequence[Sequence[Head]] | None" = None,
        metric: str | None = None,
        to: str | None = None,
    ) -> "Worth":
        """Measure loss, score and share of changed translations without each head, or each of `groups` of heads.

        Args:
            pairs: as for `evaluate`. All are translated once for each head or group: a hundred are enough.
            metric: one of those of `evaluate`; by default `self.metric`.
            to: the target language, one of `tags`; by default that of each pair.
        """
        from seq2see.lens import heads

        self.need_attention("heads")
        score = partial(metrics.one, metric or self.metric, unit=error_unit(self.settings))
        return heads.worth(self.bundle, self._pairs(pairs, to), groups, score, self.watch)

    def prune_heads(
        self,
        pairs: GivenPairs | None = None,
        metric: str | None = None,
        to: str | None = None,
        seed: int = 1,
        orders: int = 3,
        points: int = 10,
    ) -> "Pruning":
        """Remove heads one by one, first those without which the loss rises least, and measure loss and score.

        Args:
            pairs: as for `evaluate`; by default the first 200 validation pairs. Half rank the heads, half measure.
            seed, orders: random seed and number of the random orders in which heads are also removed, for comparison.
            points: maximum number of measurements in an order; each translates half of the pairs once.
        """
        from seq2see.lens import pruning

        self.need_attention("heads")
        name, plan = metric or self.metric, pruning.PruningPlan(seed, orders, points)
        score = partial(metrics.one, name, unit=error_unit(self.settings))
        chosen = self._pairs(self.validation_pairs[: pruning.PAIRS] if pairs is None else pairs, to)
        return pruning.prune(self.bundle, chosen, score, name, plan, self.watch)

    def head_statistics(self, pairs: GivenPairs, to: str | None = None) -> "Statistics":
        """Return statistics of where each head attends, such as the mean distance. Pairs are as for `evaluate`."""
        from seq2see.lens import heads

        self.need_attention("heads")
        return heads.statistics(self.bundle, self._pairs(pairs, to), self.watch)

    def _pairs(self, given: GivenPairs, to: str | None = None) -> list[Pair]:
        """Return `given` as pairs; in a run with tags, a source gets the tag of `to`, else of its pair's language."""
        if isinstance(given, str | Path):
            from seq2see.text import corpora

            given = corpora.for_scoring(str(given))
        pairs = [pair_of(each, number) for number, each in enumerate(given, start=1)]
        if not (self.tags or to):
            return pairs
        return [pair._replace(source=self.tagged([pair.source], to or pair.language)[0]) for pair in pairs]

    def need_attention(self, what: str) -> None:
        """Raise an error if the model has no attention; `what` is the feature that needs it, for the message."""
        if not self.settings.model.attention:
            kind = self.settings.model.architecture
            raise SettingError(
                f"{self.folder}: a model without attention (model.architecture = '{kind}') has no {what}"
            )

    @property
    def validation_pairs(self) -> list[Pair]:
        """Return the validation set; empty if the run folder has no `validation.jsonl`."""
        path = self.folder / "validation.jsonl"
        return list(Pairs(path)) if path.exists() else []

    @cached_property
    def examples(self) -> list[str]:
        """Return up to four sources of the validation set for trying out the model."""
        try:
            return usual_sources(self.validation_pairs)
        except SeqError:  # a damaged file is no reason not to serve
            return []

    @cached_property
    def alignment_method(self) -> "Method":
        """Return the method that aligns tokens: the one in the manifest, else the head that was trained to align, else
        heads chosen on the validation set, which are stored in the manifest if there are enough pairs to measure them.
        """
        from seq2see.lens import alignment

        self.need_attention("alignments")
        kept = alignment.from_json(self.manifest.get("alignment"), self.settings)
        if kept is not None:
            return kept
        method = alignment.guided(self.settings) or alignment.choose(self.bundle, self.validation_pairs, self.watch)
        if method.pairs:
            self.keep_fact("alignment", method.json())
        return method

    def keep_fact(self, name: str, fact: dict[str, Any]) -> None:
        """Store a computed fact in the manifest; if the folder cannot be written to, only in memory."""
        self.manifest[name] = fact
        with contextlib.suppress(RunError):  # a read-only folder, a full disk
            facts = storage.read_manifest(self.folder)  # as it is now: a training may have ended meanwhile
            storage.write_manifest(self.folder, facts | {name: fact})

    def align(self, lines: Sequence[str], results: Sequence[Result], to: str | None = None) -> "list[list[Alignment]]":
        """Return the alignments of each line's translations in `results`; source spans count characters of `lines`."""
        from seq2see.lens import alignment

        tagged = self.tagged(lines, to)
        return alignment.align_results(self.bundle, self.alignment_method, lines, tagged, results)

    def evaluate(
        self,
        pairs: GivenPairs,
        beam: int | None = None,
        n_best: int = 1,
        tokenize: str = "auto",
        engine: Engine | None = None,
        unit: metrics.Unit | None = None,
        to: str | None = None,
    ) -> Evaluation:
        """Translate the sources and score the translations against targets and further references.

        Args:
            pairs: a file, a corpus by name (its test set), or the pairs themselves: `(source, target)`, with any
                further references after the target, or `Pair`.
            n_best: if above 1, also score whether a reference is among this many hypotheses.
            tokenize: the tokenizer of BLEU, one of `metrics.TOKENIZERS`.
            unit: what the error rate counts, `symbols` or `characters`; by default as the target tokenizer suggests.
            to: the target language, one of `tags`; by default that of each pair.
        """
        metrics.check_tokenizer(tokenize)
        pairs = self._pairs(pairs, to)
        if not pairs:
            raise DataError("nothing to evaluate: no usable pair (a pair needs text on both sides)")
        engine = engine or self.engine(precision="float32")
        results = self.search([pair.source for pair in pairs], beam, n_best, engine=engine)
        width, unit = max(n_best, beam or self.settings.decoding.beam), unit or error_unit(self.settings)
        return evaluations.measured(pairs, results, (engine.name, width), self.tokenizers, tokenize, unit, n_best)


def load(folder: str | Path) -> Run:
    """Open a run folder."""
    return Run(folder)
