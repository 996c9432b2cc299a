"""Named starting points: each returns an overlay for `config.resolve`, readable in one glance."""

from typing import Any

from seq2see.errors import SettingError, nearest

Preset = dict[str, dict[str, Any]]


def paper_base() -> Preset:
    """Table 3, first row: 63 million parameters with 37,000 shared byte-pair tokens."""
    return {
        "data": {
            "source_tokenizer": "bpe",
            "target_tokenizer": "bpe",
            "source_vocabulary": 37_000,
            "target_vocabulary": 37_000,
            "shared": True,
        },
        "model": {
            "encoder_layers": 6,
            "decoder_layers": 6,
            "d_model": 512,
            "heads": 8,
            "d_ff": 2048,
            "dropout": 0.1,
            "norm": "post",
            "activation": "relu",
            "positions": "sinusoid",
            "tie": "all",
            "output_bias": False,
        },
        "training": {
            "batch_tokens": 50_000,
            "max_steps": 100_000,
            "schedule": "noam",
            "learning_rate": 0.0,
            "warmup_steps": 4000,
            "label_smoothing": 0.1,
            "adam_beta1": 0.9,
            "adam_beta2": 0.98,
            "adam_epsilon": 1e-9,
            "clip_norm": 0.0,
            "average": 5,
            "patience": 0,
        },
        "decoding": {"beam": 4, "length_penalty": 0.6, "length_formula": "paper", "max_ratio": 1.0, "max_extra": 50},
    }


def paper_big() -> Preset:
    """Table 3, last row: 214 million parameters; 300,000 steps, the last 20 checkpoints averaged."""
    preset = paper_base()
    preset["model"] |= {"d_model": 1024, "heads": 16, "d_ff": 4096, "dropout": 0.3}
    preset["training"] |= {"max_steps": 300_000, "average": 20}
    return preset


def tutorial_small() -> Preset:
    """The size that tutorials train on a few thousand chat lines: 5,316,392 parameters with 9,000 words a side."""
    preset = paper_base()
    preset["data"] |= {
        "source_tokenizer": "unigram",
        "target_tokenizer": "unigram",
        "source_vocabulary": 9000,
        "target_vocabulary": 9000,
        "shared": False,
    }
    preset["model"] |= {
        "encoder_layers": 4,
        "decoder_layers": 4,
        "d_model": 128,
        "heads": 4,
        "d_ff": 512,
        "dropout": 0.3,
        "tie": "none",
        "output_bias": True,
        "norm_epsilon": 1e-6,
    }
    preset["training"] |= {"batch_tokens": 4096, "max_steps": 20_000, "label_smoothing": 0.0, "patience": 8}
    preset["decoding"] = {"beam": 1}
    return preset


def tiny() -> Preset:
    """For short sequences, or a few thousand pairs: 2 + 2 layers of width 96, pre-norm, rotary positions."""
    model = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 96, "heads": 4, "d_ff": 384}
    return {"model": {**model, **_QUICK_TO_LEARN}}


def compact() -> Preset:
    """For ten thousand sentences: 3 + 3 layers of width 128."""
    model = {"encoder_layers": 3, "decoder_layers": 3, "d_model": 128, "heads": 4, "d_ff": 512}
    return {"model": {**model, **_QUICK_TO_LEARN}}


def small() -> Preset:
    """For tens of thousands of sentences: 3 + 3 layers of width 256."""
    model = {"encoder_layers": 3, "decoder_layers": 3, "d_model": 256, "heads": 4, "d_ff": 1024}
    return {"model": {**model, **_QUICK_TO_LEARN}}


def rnn() -> Preset:
    """An LSTM encoder-decoder without attention (Sutskever et al., 2014), with as many weights as the Transformer that
    the corpus suggests."""
    return {"model": {"architecture": "rnn"}}


def rnn_attention() -> Preset:
    """The same in both directions, with alignment attention (Bahdanau et al., 2015)."""
    return {"model": {"architecture": "rnn-attention"}}


_QUICK_TO_LEARN = {"norm": "pre", "positions": "rotary"}
"""Differs from the paper: both bear a higher rate, and reach the same score in half the steps (docs/log.md)."""

PRESETS = {
    "paper-base": paper_base,
    "paper-big": paper_big,
    "tutorial-small": tutorial_small,
    "small": small,
    "compact": compact,
    "tiny": tiny,
    "rnn": rnn,
    "rnn-attention": rnn_attention,
}


def preset(name: str) -> Preset:
    """The overlay of a preset by name."""
    if name not in PRESETS:
        raise SettingError(f"unknown preset '{name}'. {nearest(name, PRESETS)}")
    return PRESETS[name]()
