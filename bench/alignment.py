"""Train with and without the alignment loss, and score translations and alignments over several seeds.

    python -m bench.alignment OUT --generated [--seeds 1 2 3] [--weights 0 0.05] [--at-once 2] [--set KEY=VALUE]...
    python -m bench.alignment OUT --pairs train.en,train.de --valid val.en,val.de --test test.en,test.de --links FILE

FILE has a line for each pair of the test set, with the links of another aligner by words from 0: `0-0` is sure, `1p2`
possible. `--from-links FORWARD REVERSE` writes such a file from the links of both directions, as eflomal gives them:
those of both directions are sure. Without `--pairs`, `--generated` trains on sentences of two made-up languages whose
links are known (`generated`).

Each training is a process of its own, `--at-once` of them side by side, without trials of other settings. Alignments
are those of the references (forced decoding), so that all models align the same words. Printed for each training: BLEU
of the test set with beam 5, the best validation loss, the share of output words with a sure link for which the model
names one of these input words, and the alignment error rate (AER; Och and Ney 2003), lower is better.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
from pathlib import Path

Links = set[tuple[int, int]]
Pairs = list[tuple[str, str]]


# --- two languages with known links ----------------------------------------------------------------------------------


def generated(count: int, seed: int) -> tuple[Pairs, list[Links]]:
    """Return sentences of two made-up languages, and the links of their words: input from 0, output from 0.

    The first has the order of English: article, adjective, noun; subject, verb, object; a preposition. The second has
    no articles, adjectives after the noun, the verb at the end, postpositions, and a particle after the object that
    comes from nowhere. A word may occur twice in a sentence.
    """
    lexicon, dice = _lexicon(), random.Random(seed)
    pairs, links = [], []
    for _ in range(count):
        phrases = [_phrase(lexicon, dice) for _ in range(3)]
        verb, link_word = dice.choice(lexicon["verb"]), dice.choice(lexicon["preposition"])
        source: list[str] = []
        places: list[list[tuple[int, str]]] = []  # of each part, in the order of the source: where, and as what
        for part in (phrases[0], [verb], phrases[1], [link_word], phrases[2]):
            places.append([(len(source) + place, other) for place, (_, other) in enumerate(part) if other])
            source += [word for word, _ in part]
        subject, action, other, relation, where = places
        order = [*reversed(subject), *reversed(where), *relation, *reversed(other), (-1, "wo"), *action]
        pairs.append((" ".join(source), " ".join(word for _, word in order)))
        links.append({(place, output) for output, (place, _) in enumerate(order) if place >= 0})
    return pairs, links


def _lexicon() -> dict[str, list[tuple[str, str]]]:
    """Return words of the first language with their translations; articles have none."""
    dice = random.Random(0)
    sizes = {"article": 3, "adjective": 60, "noun": 200, "verb": 80, "preposition": 8}
    words = [set[str](), set[str]()]
    for side, letters in enumerate(("bdfgklmnprst aeiou", "chjkmqrsvwyz aeo")):
        consonants, vowels = letters.split()
        while len(words[side]) < sum(sizes.values()):
            syllables = dice.randint(2, 4)
            words[side].add("".join(dice.choice(consonants) + dice.choice(vowels) for _ in range(syllables)))
    both = list(zip(*(sorted(side, key=lambda word: (hash_of(word), word)) for side in words), strict=True))
    found, first = {}, 0
    for kind, size in sizes.items():
        found[kind] = [(one, "" if kind == "article" else other) for one, other in both[first : first + size]]
        first += size
    return found


def hash_of(word: str) -> int:
    """Return a number that shuffles words, the same in every process."""
    return int.from_bytes(word.encode()) * 2_654_435_761 % 1_000_003


def _phrase(lexicon: dict[str, list[tuple[str, str]]], dice: random.Random) -> list[tuple[str, str]]:
    """Return an article, perhaps an adjective, and a noun; words early in the lexicon are more frequent."""

    def some(kind: str) -> tuple[str, str]:
        return lexicon[kind][int(len(lexicon[kind]) * dice.random() ** 2)]

    return [some("article"), *([some("adjective")] if dice.random() < 0.5 else []), some("noun")]


# --- links and scores ------------------------------------------------------------------------------------------------


def read_links(path: Path) -> list[tuple[Links, Links]]:
    """Return the sure links and all links of each line."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        each = [re.fullmatch(r"(\d+)([-p])(\d+)", word) for word in line.split()]
        if None in each:
            raise SystemExit(f"{path}, line {len(found) + 1}: expected links such as 0-0 or 1p2")
        possible = {(int(link[1]), int(link[3])): link[2] for link in each if link}
        found.append(({link for link, kind in possible.items() if kind == "-"}, set(possible)))
    return found


def write_links(path: Path, links: list[tuple[Links, Links]]) -> None:
    """Write sure and possible links as `read_links` reads them."""
    lines = [
        " ".join(f"{source}{'-' if (source, target) in sure else 'p'}{target}" for source, target in sorted(possible))
        for sure, possible in links
    ]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def join_directions(forward: Path, reverse: Path, lines: int) -> list[tuple[Links, Links]]:
    """Return the links of the first lines of two files: sure if both have them, else possible."""
    both = [[known for known, _ in read_links(path)[:lines]] for path in (forward, reverse)]
    return [(one & other, one | other) for one, other in zip(*both, strict=True)]


def score(said: list[Links], known: list[tuple[Links, Links]]) -> tuple[float, float]:
    """Return the share of output words with sure links of which one was named, and the alignment error rate."""
    right = words = named = in_sure = in_possible = sures = 0
    for links, (sure, possible) in zip(said, known, strict=True):
        outputs = {output for _, output in sure}
        words += len(outputs)
        right += len({output for _, output in links & sure})
        named, sures = named + len(links), sures + len(sure)
        in_sure, in_possible = in_sure + len(links & sure), in_possible + len(links & possible)
    return right / words, 1 - (in_sure + in_possible) / (named + sures)


def measure(folder: Path, pairs: Pairs, known: list[tuple[Links, Links]]) -> dict[str, float]:
    """Return the scores of a trained run."""
    import seq2see
    from seq2see.lens import alignment, reading
    from seq2see.text.pair import Pair
    from seq2see.training import journal

    run = seq2see.load(folder)
    texts = [Pair(source, target, "") for source, target in pairs]
    sources, targets = reading.encode(run.bundle, texts)
    unended = [ids[:-1] for ids in targets]
    aligned = alignment.align(run.bundle, run.alignment_method, [pair.source for pair in texts], sources, unended)
    said = [{_link(word) for word in each.pharaoh.split()} for each in aligned]
    right, error = score(said, known)
    evaluation = run.evaluate(pairs, engine=run.engine("torch"))
    losses = [row["validation"]["loss"] for row in journal.read(folder) if "validation" in row]
    return {
        "bleu": next(each.value for each in evaluation.scores if each.name == "bleu"),
        "loss": min(losses),
        "words": 100 * right,
        "aer": 100 * error,
        "seconds": run.manifest["trained_in_seconds"],
        "preparing": run.manifest["prepared_in_seconds"],
    }


def _link(word: str) -> tuple[int, int]:
    source, target = word.split("-")
    return int(source), int(target)


# --- trainings -------------------------------------------------------------------------------------------------------


def train_one(options: argparse.Namespace, weight: float, seed: int) -> None:
    """Train one model and print its scores as JSON."""
    import seq2see
    from seq2see.cli.options import parse_assignments

    folder = options.out / f"weight-{weight:g}-seed-{seed}"
    own = parse_assignments([*options.set, f"training.alignment_weight={weight}", f"training.seed={seed}"])
    if not (folder / "report.html").exists():
        seq2see.train(options.pairs, folder, valid=options.valid, tune=0, settings=own, force=True)
    lines = [Path(each).read_text(encoding="utf-8").splitlines() for each in options.test.split(",")]
    found = measure(folder, list(zip(*lines, strict=True)), read_links(options.links))
    print(json.dumps({"weight": weight, "seed": seed, **found}))


def prepare_generated(options: argparse.Namespace, pairs: int) -> None:
    """Write a generated corpus, unless this is one of its trainings, and set the options that name its files."""
    for name, count, seed in (("train", pairs, 1), ("valid", 500, 2), ("test", 1000, 3)):
        if options.one:
            break
        made, links = generated(count, seed)
        for side, suffix in enumerate(("one", "two")):
            text = "".join(f"{pair[side]}\n" for pair in made)
            (options.out / f"{name}.{suffix}").write_text(text, encoding="utf-8")
        if name == "test":
            write_links(options.out / "links", [(each, each) for each in links])
    options.pairs, options.valid, options.test = (
        f"{options.out / name}.one,{options.out / name}.two" for name in ("train", "valid", "test")
    )
    options.links = options.out / "links"


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.from_links:
        write_links(options.out / "links", join_directions(*options.from_links, options.lines))
        return
    if options.generated:
        prepare_generated(options, options.generated)
    if options.one:
        train_one(options, options.weights[0], options.seeds[0])
        return
    waiting = [(weight, seed) for seed in options.seeds for weight in options.weights]
    running: list[subprocess.Popen[str]] = []
    found = []
    while waiting or running:
        while waiting and len(running) < options.at_once:
            weight, seed = waiting.pop(0)
            command = [sys.executable, "-m", "bench.alignment", *sys.argv[1:], "--one"]
            command += ["--weights", str(weight), "--seeds", str(seed)]
            running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ))
        output, _ = running[0].communicate()
        if running.pop(0).returncode:
            raise SystemExit("a training failed")
        found.append(json.loads(output.splitlines()[-1]))
        print(json.dumps(found[-1]), flush=True)
    for weight in options.weights:
        same = [each for each in found if each["weight"] == weight]
        print(
            f"weight {weight:g}: "
            + ", ".join(f"{key} {_spread(same, key)}" for key in ("bleu", "loss", "words", "aer"))
        )


def _spread(found: list[dict[str, float]], key: str) -> str:
    values = [each[key] for each in found]
    return f"{statistics.fmean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--generated", type=int, nargs="?", const=5000, help="number of generated training pairs")
    parser.add_argument("--pairs")
    parser.add_argument("--valid")
    parser.add_argument("--test")
    parser.add_argument("--links", type=Path)
    parser.add_argument("--from-links", type=Path, nargs=2)
    parser.add_argument("--lines", type=int, default=1000, help="lines of --from-links that are the test set")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.05])
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
