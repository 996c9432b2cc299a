"""Settings become a model here, and nowhere else."""

from dataclasses import asdict

from seq2see.config import Model
from seq2see.model.transformer import Transformer


def build(settings: Model, source_vocabulary: int, target_vocabulary: int) -> Transformer:
    """A freshly initialised model for vocabularies of these sizes."""
    return Transformer(source_vocabulary, target_vocabulary, **asdict(settings))


def count_parameters(settings: Model, source_vocabulary: int, target_vocabulary: int) -> int:
    """How many weights `build` would make, without making them: any size can be asked for."""
    D, F, H = settings.d_model, settings.d_ff, settings.heads
    K = settings.d_key or D // H
    width = settings.d_value or K
    norm = 2 * D
    attention = (D + 1) * H * (2 * K + width) + (H * width + 1) * D + norm
    feed_forward = (D + 1) * F + (F + 1) * D + norm
    stacks = settings.encoder_layers * (attention + feed_forward)
    stacks += settings.decoder_layers * (2 * attention + feed_forward)
    if settings.norm == "pre":
        stacks += 2 * norm
    tables = {"all": source_vocabulary, "decoder": source_vocabulary + target_vocabulary}
    embeddings = D * tables.get(settings.tie, source_vocabulary + 2 * target_vocabulary)
    if settings.positions == "learned":
        embeddings += 2 * D * settings.max_positions
    return stacks + embeddings + target_vocabulary * settings.output_bias
