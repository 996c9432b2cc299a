"""Settings become a model here, and nowhere else."""

from dataclasses import asdict

from seq2see.config import Model
from seq2see.model.transformer import Transformer


def build(settings: Model, source_vocabulary: int, target_vocabulary: int) -> Transformer:
    """A freshly initialised model for vocabularies of these sizes."""
    return Transformer(source_vocabulary, target_vocabulary, **asdict(settings))


def count_parameters(settings: Model, source_vocabulary: int, target_vocabulary: int) -> int:
    """How many weights `build` would make, without making them."""
    import torch

    with torch.device("meta"):
        model = build(settings, source_vocabulary, target_vocabulary)
    return sum(weight.numel() for weight in model.parameters())
