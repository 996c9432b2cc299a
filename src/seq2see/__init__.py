"""Train, see into and serve sequence-to-sequence Transformers.

Public names are imported when they are first used, so that `import seq2see` is fast.
"""

import os
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "train": "session.train",
    "load": "run",
    "import_model": "interop.importing",
    "Run": "run",
    "Glossary": "documents.glossary",
    "scaled_dot_product_attention": "model.attention",
    "MultiHeadAttention": "model.attention",
    "keep_padding": "model.attention",
    "keep_past": "model.attention",
    "keep_unless": "model.attention",
    "sinusoid": "model.layers",
    "EncoderLayer": "model.transformer",
    "DecoderLayer": "model.transformer",
    "LayerShape": "model.transformer",
    "Transformer": "model.transformer",
    "noam": "training.schedule",
    "capture": "lens.capture",
    "changed": "lens.intervention",
    "from_keras": "interop.keras",
}

__all__ = [*_HOMES]

if "OMP_WAIT_POLICY" not in os.environ:
    # How often a thread of OpenMP (libgomp) looks for more work before it sleeps: for 0.1 to 0.5 ms. The default of
    # 300,000 wastes up to 15 ms beside a busy program (kernels/threads.py). It is read when torch is imported.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")


def _is_intel() -> bool:
    """Return whether Linux says that the processor is Intel's."""
    try:
        with open("/proc/cpuinfo", "rb") as facts:  # noqa: PTH123 (importing pathlib takes longer than all of this)
            return b"GenuineIntel" in facts.read(200)
    except OSError:
        return False


if _is_intel():
    # Intel's MKL, which multiplies matrices for PyTorch, divides long sums among threads on Intel processors with
    # AVX-512, so that the weights depend on the number of threads. In this mode it does not, at the same speed
    # (docs/log.md). It is read at the first multiplication. MKL may use slow instructions in it on AMD's processors,
    # where the number of threads changes nothing in any case.
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'seq2see' has no attribute '{name}'")
    return getattr(import_module(f"seq2see.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
