"""Scores of the runs of `bench.regimes`, kept in the repository without any text of a corpus or of an output.

`regimes-scores.jsonl` has a line of JSON for each run: its label, corpus and seed, the version that was measured, a
hash of the test file, the device, the duration and the settings that were chosen. `counts` has the counts of each test
item that the score is computed from: whether the output is right, or the n-gram statistics of BLEU. The comparison over
seeds needs nothing else, so it gives the same numbers as a comparison of the outputs, and can be extended by later
runs.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # workers import this module beside release 0.1.0, so that functions import what they use
    from seq2see.evaluation.metrics import Score, Scores

Row = dict[str, Any]
Pairs = Sequence[tuple[str, str]]
KEPT = Path(__file__).with_name("regimes-scores.jsonl")
SETTINGS = {
    "model": ("encoder_layers", "decoder_layers", "d_model", "dropout"),
    "training": ("agreement", "weight_decay", "max_steps", "batch_tokens"),
}
"""Settings that are kept, by section."""


def fingerprint(test: Pairs) -> str:
    """Return the first 16 digits of the SHA-256 of a test file with two columns, as `zcat FILE | sha256sum` has it."""
    return hashlib.sha256("".join(f"{source}\t{target}\n" for source, target in test).encode()).hexdigest()[:16]


def score(outputs: Sequence[str], test: Pairs, metric: str) -> "Score":
    """Return the score of the outputs for a test set."""
    from seq2see.evaluation import metrics

    return metrics.score([[text] for text in outputs], [[target] for _, target in test], names=[metric])[metric]


def without_texts(row: Row, test: Pairs, metric: str, version: str) -> Row:
    """Return what is kept of a result of `bench.regimes run`."""
    expected = fingerprint(test)
    if row.get("test_set", expected) != expected:
        raise SystemExit(f"{_name(row)}: the run translated another test file than the one in --data")
    found = score(row["outputs"], test, metric)
    return {
        **{name: row[name] for name in ("label", "corpus", "seed", "on")},
        "version": version,
        "test_set": expected,
        **{name: row[name] for name in ("device", "seconds", "steps")},
        "trials": row["trials"]["relative_cost"] if row["trials"] else None,
        "settings": {name: row["chosen"][section][name] for section, names in SETTINGS.items() for name in names},
        "metric": metric,
        "value": round(found.value, 2),  # for readers of the file; the page uses the counts
        "signature": found.signature,
        "counts": _pack(found.counts),
    }


def joined(rows: Sequence[Row]) -> "Scores":
    """Return the score of runs on several corpora, as if their test sets were one."""
    from seq2see.evaluation.metrics import Scores

    if len({_computed(row) for row in rows}) > 1:
        raise SystemExit(f"{', '.join(map(_name, rows))}: scored in different ways, so that they cannot be joined")
    counts = [item for row in rows for item in _unpack(row["counts"])]
    sample = "any four words do"
    known = score([sample], [("", sample)], rows[0]["metric"])  # the function of sums is the same for all texts
    value = known.of_sums([sum(column) for column in zip(*counts, strict=True)])
    return Scores((replace(known, value=value, signature=rows[0]["signature"], counts=counts),))


def read(path: Path = KEPT) -> list[Row]:
    """Return the kept runs, by corpus, label and seed; an empty list if there is no such file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return _checked([json.loads(line) for line in lines], path)


def keep(rows: Iterable[Row], path: Path = KEPT, replacing: bool = False) -> tuple[int, int]:
    """Add runs to the file; return how many were written, and how many were not because the file already had them.

    With `replacing`, runs that the file has are written again.
    """
    kept = {_key(row): row for row in read(path)}
    written = known = 0
    for row in rows:
        if _key(row) in kept and not replacing:
            known += 1
        else:
            kept[_key(row)] = row
            written += 1
    lines = [json.dumps(row, ensure_ascii=False) for row in _checked(kept.values(), path)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return written, known


def _checked(rows: Iterable[Row], path: Path) -> list[Row]:
    """Return the rows in order, or raise an error if runs on a corpus were not scored in one way on one test file."""
    ordered = sorted(rows, key=_key)
    first: dict[str, Row] = {}
    for row in ordered:
        other = first.setdefault(row["corpus"], row)
        if (row["test_set"], _computed(row)) != (other["test_set"], _computed(other)):
            raise SystemExit(
                f"{path}: {_name(row)} ({row['test_set']}, {row['signature']}) and {_name(other)} "
                f"({other['test_set']}, {other['signature']}) have different test files or scores, so that they cannot "
                "be compared. Delete the lines of one of them, or measure both again"
            )
    return ordered


def _key(row: Row) -> tuple[str, str, int]:
    return row["corpus"], row["label"], row["seed"]


def _name(row: Row) -> str:
    return f"{row['label']} {row['corpus']} seed {row['seed']}"


def _computed(row: Row) -> str:
    """Return how a score was computed, without the version of the program."""
    return f"{row['metric']} {row['signature'].partition('|version:')[0]}"


def _pack(counts: list[list[float]]) -> str:
    """Return the counts as text: JSON by column, which compresses better than by item, then zlib, then base 85."""
    columns = json.dumps([*zip(*counts, strict=True)], separators=(",", ":"))
    return base64.b85encode(zlib.compress(columns.encode(), 9)).decode()


def _unpack(packed: str) -> list[list[float]]:
    columns = json.loads(zlib.decompress(base64.b85decode(packed)))
    return [[*item] for item in zip(*columns, strict=True)]
