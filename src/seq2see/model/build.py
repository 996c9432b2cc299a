"""Build a model from its settings. No other module turns settings into layers."""

from dataclasses import asdict

from seq2see.config import Model, foreign
from seq2see.model.interface import Seq2Seq
from seq2see.model.recurrent import Recurrent
from seq2see.model.transformer import Transformer


def build(settings: Model, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """Make a freshly initialised model for vocabularies of these sizes."""
    unused = ("architecture", *foreign(settings.architecture))
    options = {key: value for key, value in asdict(settings).items() if key not in unused}
    if settings.architecture == "transformer":
        return Transformer(source_vocabulary, target_vocabulary, **options)
    with_attention = settings.architecture == "rnn-attention"
    return Recurrent(source_vocabulary, target_vocabulary, attention=with_attention, **options)


def count_parameters(settings: Model, source_vocabulary: int, target_vocabulary: int) -> int:
    """Count the weights of the model that `build` would make, without allocating any of them."""
    D = settings.d_model
    stacks = _transformer_stacks(settings) if settings.architecture == "transformer" else _recurrent_stacks(settings)
    tables = {"all": source_vocabulary, "decoder": source_vocabulary + target_vocabulary}
    embeddings = D * tables.get(settings.tie, source_vocabulary + 2 * target_vocabulary)
    return stacks + embeddings + target_vocabulary * settings.output_bias


def _transformer_stacks(settings: Model) -> int:
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
    if settings.positions == "learned":
        stacks += 2 * D * settings.max_positions
    return stacks


def _recurrent_stacks(settings: Model) -> int:
    D, state = settings.d_model, settings.d_hidden or settings.d_model
    gates = 4 if settings.cell == "lstm" else 3
    attention = settings.architecture == "rnn-attention"

    def layers(count: int, d_input: int, directions: int) -> int:
        width = state // directions
        inputs = [d_input, *[state] * (count - 1)]
        return sum(directions * gates * width * (each + width + 2) for each in inputs)

    stacks = layers(settings.encoder_layers, D, 2 if attention else 1)
    stacks += layers(settings.decoder_layers, D + state * attention, 1)
    stacks += (state + (state + D) * attention + 1) * D  # the read-out
    return stacks + attention * (2 * state * state + 2 * state)
