"""A trained model in its folder: translate, look inside, evaluate. Torch is imported only by what needs it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from seq2see import bundle
from seq2see.bundle import Bundle, Tokenizers
from seq2see.config import Decoding, Settings
from seq2see.data import tokenizer
from seq2see.data.pair import Pair, Sides
from seq2see.decoding import ct2_engine, translator
from seq2see.decoding.hypothesis import Engine, Hypothesis, Task
from seq2see.decoding.translator import Result
from seq2see.errors import DataError, SettingError, nearest
from seq2see.evaluation import metrics
from seq2see.evaluation.metrics import Scores
from seq2see.training import ranks

if TYPE_CHECKING:
    from seq2see.decoding.search import Choose
    from seq2see.lens.answers import Look


class Shared:
    """An engine of many ranks, which are all asked the same: each searches for a share, and all get all answers.

    They meet after every `AT_ONCE` tasks: none then waits for long, and none is taken for lost (`ranks.TIMEOUT`).
    """

    AT_ONCE = 1000

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self._engine = engine

    def search(self, tasks: list[Task], settings: Decoding) -> list[list[Hypothesis]]:
        rank, world = ranks.rank(), ranks.world()
        answers: list[list[Hypothesis]] = []
        for begin in range(0, len(tasks), self.AT_ONCE * world):
            block = tasks[begin : begin + self.AT_ONCE * world]
            mine = self._engine.search(block[rank::world], settings)
            parts = ranks.from_all([[asdict(each) for each in found] for found in mine])
            of_tasks = (parts[number % world][number // world] for number in range(len(block)))
            answers += [[Hypothesis(**each) for each in found] for found in of_tasks]
        return answers


EngineName = Literal["auto", "torch", "ctranslate2"]


@dataclass(frozen=True)
class Evaluation:
    """How well a run translates some pairs, and how that was found out."""

    pairs: int
    engine: str
    """Engine and precision: "ctranslate2 float32"."""
    beam: int
    scores: Scores
    results: list[Result]
    """What it said, pair by pair."""


class Run:
    """A trained model in its folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest = bundle.read_manifest(self.folder)
        self._engines: dict[str, Engine] = {}

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.manifest.get('parameters', 0):,} parameters)"

    @cached_property
    def settings(self) -> Settings:
        return bundle.read_settings(self.folder)

    @cached_property
    def tokenizers(self) -> Tokenizers:
        return Tokenizers.load(self.folder)

    @property
    def languages(self) -> Sides:
        """Of source and target, where they were known."""
        return Sides(**self.manifest.get("languages", {}))

    @property
    def tags(self) -> list[str]:
        """The languages that a source can ask for, where the run was trained with `--tag`."""
        return self.settings.data.tags.split()

    def tagged(self, lines: Sequence[str], to: str | None = None) -> list[str]:
        """Lines with the tag of a language in front; without `to` they must bring their own, where the run has tags."""
        known = self.tags
        if to is not None and not known:
            raise SettingError(f"--to {to}: {self.folder} was trained without --tag, for one direction. Leave --to out")
        if to is not None and to not in known:
            raise SettingError(f"--to {to}: unknown. Choose from: {', '.join(known)}")
        if to is None and len(known) == 1:
            to = known[0]
        own = tuple(map(tokenizer.tag, known))
        if to is None and own and not all(line.lstrip().startswith(own) for line in lines if line.strip()):
            raise SettingError(f"{self.folder} translates to {', '.join(known)}: choose with --to")
        if to is None:
            return list(lines)
        tag = tokenizer.tag(to)
        return [line if line.lstrip().startswith(own) or not line.strip() else f"{tag} {line}" for line in lines]

    @cached_property
    def bundle(self) -> Bundle:
        """The model itself, in torch, on the card where there is one."""
        return bundle.load(self.folder, bundle.pick_device())

    def engine(self, name: str = "auto", precision: str | None = None) -> Engine:
        """What translates. `auto`: ctranslate2 on a CPU where it can, else torch. float32 or int8; not said, torch
        takes float32 and ctranslate2 int8."""
        if name not in get_args(EngineName):
            raise SettingError(f"--engine {name}: unknown. {nearest(name, get_args(EngineName))}")
        if name == "auto":
            name = "torch" if ct2_engine.obstacle(self.settings) or ct2_engine.cuda_is_here() else "ctranslate2"
        precision = precision or ("float32" if name == "torch" else "int8")
        key = f"{name} {precision}"
        if key not in self._engines:
            if name == "torch":
                from seq2see.decoding.torch_engine import TorchEngine

                self._engines[key] = TorchEngine(self.bundle.model, precision=precision)
            else:
                self._engines[key] = ct2_engine.open_engine(self.folder, precision)
        return self._engines[key]

    def translate(self, lines: Sequence[str], beam: int | None = None, to: str | None = None) -> list[str]:
        """The best translation of each line; an empty line stays empty."""
        return [result.text for result in self.search(lines, beam, to=to)]

    def search(
        self,
        lines: Sequence[str],
        beam: int | None = None,
        n_best: int = 1,
        prefixes: Sequence[str] | None = None,
        engine: Engine | None = None,
        to: str | None = None,
    ) -> list[Result]:
        """Translations with scores and tokens, by the engine that `engine()` or `sampler()` gave.

        Args:
            to: the language, one of `tags`.
        """
        if isinstance(lines, str):
            raise TypeError("translate wants a list of lines, not one text: put it in [ ]")
        lines = self.tagged(lines, to)
        settings = self.settings
        if beam is not None:
            settings = replace(settings, decoding=replace(settings.decoding, beam=beam))
        engine = engine or self.engine()
        return translator.translate(engine, self.tokenizers, settings, lines, n_best=n_best, prefixes=prefixes)

    def sampler(self, choose: "Choose", precision: str = "float32") -> Engine:
        """An engine that draws its words (`decoding.search.sampling`)."""
        from seq2see.decoding.torch_engine import TorchEngine

        return TorchEngine(self.bundle.model, choose, precision)

    def look(self, sentence: str, to: str | None = None) -> "Look":
        """Every attention of every layer and head in the translation of one sentence, as arrays with token labels."""
        from seq2see.lens import answers

        return answers.look(self.bundle, *self.tagged([sentence], to))

    def evaluate(
        self,
        pairs: str | Path | Iterable[Pair],
        beam: int | None = None,
        n_best: int = 1,
        tokenize: str = "13a",
        engine: Engine | None = None,
        unit: metrics.Unit | None = None,
        to: str | None = None,
    ) -> Evaluation:
        """Translate the sources and score the translations against targets and further references.

        Args:
            pairs: a file, a corpus by name (its test set), or the pairs themselves.
            n_best: above 1, score as well whether the right one is among so many.
            tokenize: how BLEU cuts words: one of `metrics.TOKENIZERS`.
            unit: what the error rate counts; characters where the run writes letter by letter, else symbols.
            to: the language, one of `tags`; if not given, that of each pair.
        """
        metrics.check_tokenizer(tokenize)
        if isinstance(pairs, str | Path):
            from seq2see.data import corpora

            pairs = corpora.for_scoring(str(pairs))
        pairs = list(pairs)
        engine = engine or self.engine(precision="float32")
        if not pairs:
            raise DataError("nothing to evaluate: no usable pair")
        sources = [pair.source for pair in pairs]
        if self.tags or to:
            sources = [text for pair in pairs for text in self.tagged([pair.source], to or pair.language)]
        results = self.search(sources, beam, n_best, engine=engine)
        hypotheses = [[each.text for each in result.translations] for result in results]
        references = [[pair.target, *pair.references] for pair in pairs]
        unit = unit or error_unit(self.settings)
        scores = metrics.score(hypotheses, references, tokenize, unit=unit, top_k=n_best)
        width = max(n_best, beam or self.settings.decoding.beam)
        searched = f"engine:{engine.name.replace(' ', '-')}|beam:{width}"
        signed = Scores(tuple(replace(score, signature=f"{score.signature}|{searched}") for score in scores))
        return Evaluation(len(pairs), engine.name, width, signed, results)


def load(folder: str | Path) -> Run:
    """Open a run folder."""
    return Run(folder)


def error_unit(settings: Settings) -> metrics.Unit:
    """What the error rate counts: characters where the target is cut by them, else what stands between blanks."""
    return "characters" if settings.data.target_tokenizer in ("characters", "jamo", "pattern") else "symbols"
