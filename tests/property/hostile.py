"""Run folders as a stranger might send them: seeded mutations, and a process that uses each in a child of its own.

    with Users() as users:
        outcome = users.use(folder)      # {"torch": "translated", "ctranslate2": "refused: ..."}

A child that crashes or hangs takes nobody with it: its outcome is "signal 11".
"""

import base64
import contextlib
import json
import math
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

LINES = ["ab", "dcba", "<2de> c a", "", "bd " * 8]
SECONDS = 10
"""Of computing, by all threads of a child together. The machine may be busy with other things, so the clock is not
asked before six times that."""
MOST_MEMORY = 16 * 2**30
"""Addresses that a child may ask for."""

NASTY: list[Any] = [
    *(
        0,
        1,
        -1,
        2,
        3,
        5,
        7,
        8,
        12,
        16,
        64,
        999,
        1000,
        1001,
        65_536,
        65_537,
        10**6,
        10**8,
        2**31 - 1,
        2**31,
        2**63,
        2**64,
    ),
    *(10**400, -(10**400), 0.0, -0.0, 0.5, 1.5, 1e-320, 1e6, 1e30, 1e308, -1e308, math.inf, -math.inf, math.nan),
    *(
        True,
        False,
        None,
        "",
        "a",
        "x" * 100_000,
        "\0",
        "a\nb",
        "\ud800",
        "../../etc/passwd",
        "ﷺ",
        [],
        {},
        [1, 2],
        {"a": 1},
    ),
    *(
        [[]] * 3,
        [None],
        [True],
        [[[[[[[[]]]]]]]],
        [-1, 0],
        [[0, 10**9]],
        [["0", "0"]],
        {"source": 1},
        "transformer",
        "rnn",
    ),
]
"""Values for any place."""
PATTERNS = [
    "(?:[a-z]+)+!",
    "(a|a)*b",
    r"(a+)\1*b",
    "(?:||){60}x",
    "a*",
    "[",
    "(?:a{1,60}){1,90}b",
    ".",
    "(?=a)",
    "x" * 5000,
]


class Users:
    """A process that has imported everything, and forks a child for each folder."""

    def __enter__(self) -> "Users":
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def use(self, folder: Path) -> dict[str, str]:
        """Load a run and translate with both engines; what became of each."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{folder}\n".encode())
        self._process.stdin.flush()
        outcome: dict[str, str] = json.loads(self._process.stdout.readline())
        return outcome


def is_well(outcome: dict[str, str]) -> bool:
    """Whether nothing crashed, hung or ended in a traceback."""
    return all(each == "translated" or each.startswith("refused: ") for each in outcome.values())


def serve() -> None:
    """Fork a child for each line of the standard input."""
    import ctranslate2  # noqa: F401
    import torch

    from seq2see import api  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        report, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(report)
            use(Path(line.rstrip("\n")), write)
        os.close(write)
        print(json.dumps(_wait(child, report)), flush=True)


def _wait(child: int, report: int) -> dict[str, str]:
    """Wait for a child; what it reported, and the signal by which it ended, if any."""
    deadline = time.monotonic() + 6 * SECONDS
    status = 0
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
    with os.fdopen(report, "rb") as pipe:
        lines = pipe.read().decode().splitlines()
    outcome: dict[str, str] = {}
    for line in lines:
        outcome |= json.loads(line)
    if os.WIFSIGNALED(status):
        return outcome | {"end": f"signal {os.WTERMSIG(status)}"}
    return outcome if len(outcome) == 2 else outcome | {"end": f"exit code {os.WEXITSTATUS(status)}"}


def use(folder: Path, write: int) -> None:
    """Load a run, translate with each engine, and end."""
    from seq2see import run
    from seq2see.errors import SeqError

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ["XDG_CACHE_HOME"] = str(folder.parent / "cache")
    for name in ("torch", "ctranslate2"):
        try:
            used = run.load(folder)
            to = used.tags[0] if used.tags else None
            results = used.search(LINES, engine=used.engine(name), to=to)
            said = [result.text for result in results]
            assert len(said) == len(LINES)
            if name == "torch" and used.settings.model.attention:
                used.align(LINES, results, to)
            outcome = "translated"
        except SeqError as problem:
            outcome = f"refused: {str(problem)[:3000]}"
            if len(str(problem)) > 2000 or "\n" in str(problem):
                outcome = f"a long story: {outcome}"
        except BaseException:
            outcome = f"traceback: {traceback.format_exc()[-1500:]}"
        os.write(write, json.dumps({name: outcome}).encode() + b"\n")
    os._exit(0)


# Runs to begin with, which need no training: what an answer says does not matter here.

TINY = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8}
ATTENTION = {**TINY, "heads": 2, "d_ff": 12}
BASES: dict[str, dict[str, dict[str, Any]]] = {
    "characters": {
        "data": {"source_tokenizer": "characters", "target_tokenizer": "characters", "shared": False},
        "model": {**ATTENTION, "tie": "decoder"},
    },
    "patterns": {
        "data": {
            "source_tokenizer": "pattern",
            "target_tokenizer": "symbols",
            "shared": False,
            "source_pattern": "words",
        },
        "model": {**ATTENTION, "tie": "none", "norm": "pre", "positions": "rotary", "output_bias": True, "d_key": 2},
    },
    "subwords": {
        "data": {"tags": "de fr"},
        "model": {**ATTENTION, "positions": "learned", "max_positions": 300, "activation": "gelu"},
    },
    "recurrent": {
        "data": {"source_tokenizer": "jamo", "target_tokenizer": "jamo"},
        "model": {**TINY, "architecture": "rnn-attention"},
    },
    "convolutional": {
        "model": {**TINY, "architecture": "convolutional", "max_positions": 300, "kernel": 2},
    },
}


def make_run(folder: Path, overlay: dict[str, dict[str, Any]]) -> Path:
    """Write a run with random weights."""
    import torch

    from seq2see import bundle, config, storage
    from seq2see.model.build import build
    from seq2see.text.tags import language_tag
    from seq2see.tokens import tokenizers
    from seq2see.tokens.store import Tokenizers

    settings = config.resolve(overlay, {"decoding": {"beam": 2, "max_extra": 5}})
    data, texts = settings.data, ["abcd dcba", "a b c d", "ab cd ba dc", "각 나 12"] * 5
    tags = [language_tag(each) for each in data.tags.split()]
    source = target = tokenizers.train(data.source_tokenizer, texts, 400, tags=tags, pattern=data.source_pattern)
    if not data.shared:
        target = tokenizers.train(data.target_tokenizer, texts, 400, pattern=data.target_pattern)
    torch.manual_seed(1)
    model = build(settings.model, len(source), len(target))
    folder.mkdir(parents=True)
    config.write_toml(settings, folder / "settings.toml")
    Tokenizers(source, target).save(folder)
    bundle.save_weights(model, folder / "model.safetensors")
    facts = {"corpus": "pairs.tsv", "pairs": 20, "parameters": 100, "state": "finished", "choices": []}
    facts |= {"languages": {"source": "en", "target": None}, "alignment": {"heads": [[0, 0]], "reading": 0.5}}
    storage.write_manifest(folder, facts)
    pairs = [{"source": text, "target": text} for text in texts[:4]]
    (folder / "validation.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return folder


# Mutations. Each takes the folder, which it changes, and dice.


def mutate(folder: Path, dice: random.Random) -> str:
    """Change something, and say what."""
    kind = dice.choice(list(MUTATIONS))
    MUTATIONS[kind](folder, dice)
    if dice.random() < 0.15:
        second = dice.choice(list(MUTATIONS))
        with contextlib.suppress(ValueError, KeyError, IndexError, TypeError, AttributeError):  # too damaged to be read
            MUTATIONS[second](folder, dice)
        kind = f"{kind} and {second}"
    return kind


def settings_value(folder: Path, dice: random.Random) -> None:
    """Put any value into one or two settings."""
    path = folder / "settings.toml"
    lines = path.read_text().splitlines()
    for _ in range(dice.randint(1, 2)):
        places = [number for number, line in enumerate(lines) if " = " in line]
        number = dice.choice(places) if places else 0
        value = dice.choice([*NASTY, *PATTERNS])
        lines[number] = f"{lines[number].partition(' = ')[0]} = {toml(value)}"
    write(path, "\n".join(lines) + "\n")


CHOICES = {
    "heads": [1, 2, 4, 8],
    "positions": ["sinusoid", "learned", "rotary", "none"],
    "norm": ["pre", "post"],
    "activation": ["relu", "gelu", "silu"],
    "tie": ["all", "decoder", "none"],
    "shared": [True, False],
    "architecture": ["transformer", "rnn", "rnn-attention", "rnn-dot", "convolutional"],
    "kernel": [1, 2, 3, 255],
    "d_key": [0, 1, 2, 4, 8],
    "d_value": [0, 2, 4],
    "d_model": [2, 4, 8, 16],
    "d_ff": [1, 12, 24],
    "encoder_layers": [1, 2, 3, 1000],
    "decoder_layers": [1, 2, 1000],
    "max_positions": [1, 5, 257, 300, 1024],
    "output_bias": [True, False],
    "beam": [1, 2, 20, 50, 200, 201, 10**6],
    "max_ratio": [0, 0.001, 2, 100],
    "max_extra": [1, 2, 250, 1000, 1001],
    "max_source": [1, 2, 3, 1000, 10**6],
    "length_penalty": [0, 10],
    "length_formula": ["paper", "power"],
    "batch_tokens": [1, 10**7],
    "norm_epsilon": [1e-30, 1],
    "normalization": ["nfkc", "nfkc_lower"],
    "source_tokenizer": ["characters", "unigram", "pattern"],
    "tags": ["de", "de fr", "", "<2de>"],
}


def settings_choice(folder: Path, dice: random.Random) -> None:
    """Change settings to other values that are allowed each by itself."""
    path = folder / "settings.toml"
    lines = path.read_text().splitlines()
    for _ in range(dice.randint(1, 3)):
        key, values = dice.choice(list(CHOICES.items()))
        lines = [f"{key} = {toml(dice.choice(values))}" if line.startswith(f"{key} = ") else line for line in lines]
    write(path, "\n".join(lines) + "\n")


def lines_of_settings(folder: Path, dice: random.Random) -> None:
    """Lose, repeat, move or damage lines."""
    path = folder / "settings.toml"
    lines = path.read_text().splitlines()
    number, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.randrange(6):
        case 0:
            del lines[number]
        case 1:
            lines.insert(other, lines[number])
        case 2:
            lines[number], lines[other] = lines[other], lines[number]
        case 3:
            lines[number] = lines[number] + dice.choice(["x", " = ", "]", '"', "\\", "\x00", "." * 500, "[" * 5000])
        case 4:
            lines.insert(number, ".".join("a" * dice.choice([10, 50_000])) + " = 1")
        case 5:
            lines.insert(number, dice.choice(["[extra]", "[[model]]", "[model.d_model]", "model = 1", "#" * 300_000]))
    write(path, "\n".join(lines) + "\n")


def tokenizer_value(folder: Path, dice: random.Random) -> None:
    """Put any value anywhere into a tokenizer file."""
    change_json(dice.choice(sorted(folder.glob("*.tokenizer.json"))), dice)


def vocabulary(folder: Path, dice: random.Random) -> None:
    """Lengthen, shorten or spoil the list of tokens, or the SentencePiece model."""
    path = dice.choice(sorted(folder.glob("*.tokenizer.json")))
    state = json.loads(path.read_text())
    if "model" in state:
        state["model"] = base64.b64encode(damaged(base64.b64decode(state["model"]), dice)).decode()
    else:
        symbols, place = state["symbols"], dice.randrange(len(state["symbols"]))
        match dice.randrange(9):
            case 0:
                symbols.append(dice.choice(["new", "", "\ud800", "x" * 200_000, "<s>", "#4", "a\nb", 5, None]))
            case 1:
                del symbols[place:]
            case 2:
                symbols[place] = symbols[0]
            case 3:
                symbols += [f"token {number}" for number in range(dice.choice([1, 100, 20_000]))]
            case 4:
                dice.shuffle(symbols)
            case 5:
                state["kind"] = dice.choice(["characters", "jamo", "symbols", "marks", "pattern", "unigram", "bpe"])
                state["pattern"] = dice.choice(PATTERNS)
            case 6:
                state["kind"], state["pattern"] = "pattern", dice.choice(PATTERNS)
            case 7:
                state["tags"] = dice.choice([["<2de>"], ["<2de>", "<2de>"], ["a"], [""], ["x" * 10_000], [5]])
            case 8:
                symbols[place] = dice.choice(["", "ab", "\ud800", "x" * 200_000, 5, None, ["a"], "<pad>"])
    write(path, json.dumps(state))


def a_tokenizer_more_or_less(folder: Path, dice: random.Random) -> None:
    """Swap the tokenizers, use one for both sides, or lose one."""
    source, target = folder / "source.tokenizer.json", folder / "target.tokenizer.json"
    if not target.exists():
        state = json.loads(source.read_text())
        write(target, json.dumps(state if dice.random() < 0.5 else {**state, "kind": "symbols", "symbols": ["a", "b"]}))
    elif dice.random() < 0.3:
        target.unlink()
    elif dice.random() < 0.5:
        target.write_bytes(source.read_bytes())
    else:
        one, other = source.read_bytes(), target.read_bytes()
        source.write_bytes(other)
        target.write_bytes(one)


def manifest(folder: Path, dice: random.Random) -> None:
    """Put any value anywhere into the manifest."""
    change_json(folder / "manifest.json", dice)


def alignment(folder: Path, dice: random.Random) -> None:
    """Spoil how the run aligns."""
    path = folder / "manifest.json"
    facts = json.loads(path.read_text())
    heads = [[0, 0]] if dice.random() < 0.5 else dice.choice(NASTY)
    facts["alignment"] = {"heads": heads, "reading": dice.choice(NASTY), "agreement": dice.choice(NASTY), "pairs": 3}
    if dice.random() < 0.3:
        facts["alignment"] = dice.choice(NASTY)
    write(path, json.dumps(facts))


def bytes_of_a_file(folder: Path, dice: random.Random) -> None:
    """Damage a few bytes of any file."""
    path = dice.choice(sorted(each for each in folder.iterdir() if each.is_file()))
    path.write_bytes(damaged(path.read_bytes(), dice))


def tensors(folder: Path, dice: random.Random) -> None:
    """Give a tensor another shape, kind or content, or another name."""
    path = folder / "model.safetensors"
    header, body = read_safetensors(path)
    header.pop("__metadata__", None)
    arrays = {
        name: (about["dtype"], about["shape"], body[slice(*about["data_offsets"])]) for name, about in header.items()
    }
    for _ in range(dice.choice([1, 1, 2])):
        name, other = dice.choice(list(arrays)), dice.choice(list(arrays))
        kind, shape, content = arrays[name]
        numbers = len(content) // 4
        match dice.randrange(12):
            case 0:
                del arrays[name]
            case 1:
                arrays[dice.choice(["extra", "", "x" * 10_000, name + "x"])] = arrays[name]
            case 2:
                arrays[name] = kind, shape[::-1], content
            case 3:
                arrays[name] = kind, [numbers], content
            case 4:
                arrays[name] = kind, [*shape, 1], content
            case 5:
                rows = max(0, shape[0] + dice.choice([-1, 1, 5, -shape[0], 1000])) if shape else 1
                size = rows * math.prod(shape[1:])
                arrays[name] = kind, [rows, *shape[1:]], (content * (1 + size // max(1, numbers)))[: 4 * size]
            case 6:
                columns = max(1, shape[-1] + dice.choice([-1, 1, 7]))
                size = math.prod(shape[:-1]) * columns
                arrays[name] = kind, [*shape[:-1], columns], (content * (2 + size // max(1, numbers)))[: 4 * size]
            case 7:
                arrays[name], arrays[other] = arrays[other], arrays[name]
            case 8:
                wide = {
                    "F64": 8,
                    "I64": 8,
                    "F16": 2,
                    "BF16": 2,
                    "I8": 1,
                    "BOOL": 1,
                    "U8": 1,
                    "I32": 4,
                    "F8_E4M3": 1,
                    "C64": 8,
                }
                new = dice.choice(list(wide))
                arrays[name] = new, shape, (content * 2)[: numbers * wide[new]]
            case 9:
                spoiled = bytearray(content)
                value = dice.choice([math.nan, math.inf, -math.inf, 3e38, -3e38, 1e20, 1e6, 9e5, 1e-45])
                for place in {dice.randrange(numbers) for _ in range(dice.choice([1, numbers]))} if numbers else ():
                    spoiled[4 * place : 4 * place + 4] = struct.pack("<f", value)
                arrays[name] = kind, shape, bytes(spoiled)
            case 10:
                arrays[name] = kind, shape, dice.randbytes(len(content))
            case 11:
                arrays[name] = kind, [0, *shape[1:]], b""
    write_safetensors(path, arrays)


def header_of_tensors(folder: Path, dice: random.Random) -> None:
    """Have the header of the weights say something else than what is there."""
    path = folder / "model.safetensors"
    header, body = read_safetensors(path)
    header.pop("__metadata__", None)
    about = header[dice.choice(list(header))]
    key = dice.choice(list(about))
    new = [*NASTY, [2**32, 2**32], [10**18], [10**9, 10**9], [-1], [2**63], [0, 2**60], [1e3, 8], "F128", "C128"]
    about[key] = dice.choice(new)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    length = dice.choice([len(text), len(text), len(text), 0, 2**63, len(text) * 2])
    path.write_bytes(struct.pack("<Q", length) + text + body)


MUTATIONS: dict[str, Callable[[Path, random.Random], None]] = {
    each.__name__: each
    for each in (
        settings_value,
        settings_choice,
        lines_of_settings,
        tokenizer_value,
        vocabulary,
        a_tokenizer_more_or_less,
        manifest,
        alignment,
        bytes_of_a_file,
        tensors,
        header_of_tensors,
    )
}


def write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))


def toml(value: Any) -> str:
    """Any value as TOML might write it."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return json.dumps(value)


def change_json(path: Path, dice: random.Random) -> None:
    """Change, remove or add a value somewhere in a JSON file."""
    place = whole = json.loads(path.read_text())
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = dice.choice(keys)
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or dice.random() < 0.3:
            break
        place = inner
    match dice.randrange(8):
        case 0:
            del place[key]
        case 1 if isinstance(place, dict):
            place[dice.choice(["new", "", "version", "tags"])] = dice.choice(NASTY)
        case 2:
            text = json.dumps(whole)
            write(path, dice.choice(["[" * 100_000 + "]" * 100_000, text[:-5], f"[{text}]", "1" * 5000, "NaN", "null"]))
            return
        case _:
            place[key] = dice.choice([*NASTY, *PATTERNS])
    write(path, json.dumps(whole))


def damaged(content: bytes, dice: random.Random) -> bytes:
    """Change, drop or insert a few bytes."""
    changed = bytearray(content)
    for _ in range(dice.randint(1, 4)):
        place = dice.randrange(len(changed) + 1)
        match dice.randrange(4):
            case 0 | 1:
                changed[place : place + 1] = dice.randbytes(1)
            case 2:
                del changed[place : place + dice.choice([1, 2, 9, 1000])]
            case 3:
                changed[place:place] = dice.randbytes(dice.randint(1, 9))
    return bytes(changed)


def read_safetensors(path: Path) -> tuple[dict[str, Any], bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    try:
        return json.loads(content[8 : 8 + length]), content[8 + length :]
    except ValueError:  # damaged already
        return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)


def write_safetensors(path: Path, arrays: dict[str, tuple[str, list[int], bytes]]) -> None:
    header, place = {}, 0
    for name, (kind, shape, content) in arrays.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [place, place + len(content)]}
        place += len(content)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(content for _, _, content in arrays.values()))


if __name__ == "__main__":
    serve()
