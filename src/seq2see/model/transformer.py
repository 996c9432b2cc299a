"""The Transformer of figure 1 (paper, section 3.1): encoder and decoder layer, then the whole model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from seq2see.model.attention import MultiHeadAttention
from seq2see.model.interface import Memory, Seq2Seq
from seq2see.model.layers import FeedForward, LayerNorm, Residual, make_embeddings, make_output
from seq2see.model.packing import Packing, Reach
from seq2see.model.state import DecoderState, FixedState, LayerState, Places, State


@dataclass(frozen=True)
class LayerShape:
    """Widths and other settings that all layers of a Transformer share; the defaults are those of the paper's base
    model.

    >>> EncoderLayer(LayerShape(d_model=16, heads=4, d_ff=32))(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    d_model: int = 512
    heads: int = 8
    d_ff: int = 2048
    dropout: float = 0.1
    d_key: int = 0
    """Width of a head's queries and keys; 0 means d_model / heads."""
    d_value: int = 0
    """Width of a head's values; 0 means d_key."""
    activation: str = "relu"
    norm: str = "post"
    """Position of layer norm: after the residual sum ("post", as in the paper) or before the sub-layer ("pre")."""
    norm_epsilon: float = 1e-5
    rotary: bool = False
    """Whether queries and keys of self-attention are rotated by their positions (RoPE)."""

    def attention(self, rotary: bool = False) -> MultiHeadAttention:
        return MultiHeadAttention(self.d_model, self.heads, self.d_key, self.d_value, rotary)

    def residual(self) -> Residual:
        return Residual(self.d_model, self.dropout, self.norm, self.norm_epsilon)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, for padded tensors with a `keep` mask or packed rows with a packed `Reach`."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = shape.attention(rotary=shape.rotary)
        self.feed_forward = FeedForward(shape.d_model, shape.d_ff, shape.activation)
        self.around_attention = shape.residual()
        self.around_feed_forward = shape.residual()

    def forward(self, x: Tensor, reach: Reach | Tensor | None = None) -> Tensor:
        x = self.around_attention(x, lambda y: self.self_attention(y, reach=reach))
        return self.around_feed_forward(x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention to the memory (encoder output), then feed-forward."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.self_attention = shape.attention(rotary=shape.rotary)
        self.cross_attention = shape.attention()
        self.feed_forward = FeedForward(shape.d_model, shape.d_ff, shape.activation)
        self.around_self = shape.residual()
        self.around_cross = shape.residual()
        self.around_feed_forward = shape.residual()

    def forward(
        self, x: Tensor, memory: Tensor, past: Reach | Tensor | None = None, across: Reach | Tensor | None = None
    ) -> Tensor:
        """Compute all positions at once; `past` must hide future positions, `across` the padding of the memory."""
        x = self.around_self(x, lambda y: self.self_attention(y, reach=past))
        x = self.around_cross(x, lambda y: self.cross_attention(y, memory, across))
        return self.around_feed_forward(x, self.feed_forward)  # type: ignore[no-any-return]

    def start(self, memory_ND: Tensor, packing: Packing) -> LayerState:
        return LayerState(*self.cross_attention.start(memory_ND, packing))

    def step(
        self, x_RD: Tensor, state: LayerState, keep_B1WP: Tensor | None, keep_B11S: Tensor | None, width: int = 1
    ) -> Tensor:
        """Compute one position from the state of earlier steps, with the same result as `forward`, up to rounding."""
        key, value = state.memory_key_BHSK, state.memory_value_BHSK
        x_RD = self.around_self(x_RD, lambda y: self.self_attention.step(y, state.past, keep_B1WP, width))
        x_RD = self.around_cross(x_RD, lambda y: self.cross_attention.step_across(y, key, value, keep_B11S))
        return self.around_feed_forward(x_RD, self.feed_forward)  # type: ignore[no-any-return]


class Transformer(Seq2Seq):
    """An encoder-decoder Transformer; by default the base model of the paper (figure 1).

    Args:
        widths: the fields of `LayerShape`, such as `d_model=512, heads=8, d_ff=2048, dropout=0.1, norm="post"`.
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        encoder_layers: int = 6,
        decoder_layers: int = 6,
        positions: str = "sinusoid",
        max_positions: int = 1024,
        tie: str = "all",
        output_bias: bool = False,
        **widths: Any,
    ) -> None:
        super().__init__()
        shape = LayerShape(rotary=positions == "rotary", **widths)
        self.source_embedding, self.target_embedding = make_embeddings(
            (source_vocabulary, target_vocabulary), shape.d_model, shape.dropout, tie, positions, max_positions
        )
        self.encoder = nn.ModuleList(EncoderLayer(shape) for _ in range(encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(shape) for _ in range(decoder_layers))
        # With pre-norm the output of a stack is a plain sum, so each stack ends with a norm. Post-norm has it already.
        pre_norm = shape.norm == "pre"
        self.encoder_norm = LayerNorm(shape.d_model, eps=shape.norm_epsilon) if pre_norm else nn.Identity()
        self.decoder_norm = LayerNorm(shape.d_model, eps=shape.norm_epsilon) if pre_norm else nn.Identity()
        self.output = make_output(self.source_embedding, self.target_embedding, tie, output_bias)

    @torch.no_grad()
    def scale_sublayers(self, gain: float) -> None:
        """Multiply the initial weights of values, attention outputs and feed-forward layers by `gain` (T-Fixup,
        DeepNet).

        With a gain below 1, a sub-layer adds little to its input at first, so that with post-norm the gradient reaches
        the first layers. Only initial values change: the model can be exported like any other.
        """
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                module.w_qkv.weight[-module.widths[2] :].mul_(gain)
                module.w_o.weight.mul_(gain)
            elif isinstance(module, FeedForward):
                module.w_1.weight.mul_(gain)
                module.w_2.weight.mul_(gain)

    def encode(self, source_N: Tensor, offsets: Tensor | Packing) -> Memory:
        packing = Packing.of(offsets, source_N)
        reach = Reach.packed(packing, packing)
        x_ND = self.source_embedding(source_N, packing.places_N, packing.longest)
        for layer in self.encoder:
            x_ND = layer(x_ND, reach)
        return Memory(self.encoder_norm(x_ND), packing)

    def decode(self, inputs_N: Tensor, offsets: Tensor | Packing, memory: Memory) -> Tensor:
        packing = Packing.of(offsets, inputs_N)
        past = Reach.packed(packing, packing, causal=True)
        across = Reach.packed(packing, memory.packing)
        x_ND = self.target_embedding(inputs_N, packing.places_N, packing.longest)
        for layer in self.decoder:
            x_ND = layer(x_ND, memory.states_ND, past, across)
        return self.decoder_norm(x_ND)  # type: ignore[no-any-return]

    def start(self, memory: Memory) -> DecoderState:
        keep_BS = memory.packing.keep_BL
        layers = [cast(DecoderLayer, layer).start(memory.states_ND, memory.packing) for layer in self.decoder]
        return DecoderState(layers, None if keep_BS is None else keep_BS[:, None, None, :])

    @torch.no_grad()
    def has_step_kernels(self) -> bool:
        return cast(DecoderLayer, self.decoder[0]).self_attention.has_kernel(next(self.parameters()))

    def fixed_state(self, step_B: Tensor, width: int, source_room: int, target_room: int) -> FixedState:
        attention = cast(DecoderLayer, self.decoder[0]).cross_attention
        like_HK = attention.w_qkv.weight.new_empty(attention.heads, attention.d_key)
        places = Places(step_B, width, target_room)
        return FixedState(places, source_room, len(self.decoder), like_HK, self._memory_keys)

    def _memory_keys(self, source_N: Tensor, packing: Packing) -> Iterator[tuple[Tensor, Tensor]]:
        """Encode sources; yield keys and values of the memory for each decoder layer, with concatenated heads."""
        states_ND = self.encode(source_N, packing).states_ND
        return (cast(DecoderLayer, layer).cross_attention.of_memory(states_ND) for layer in self.decoder)

    def step(self, tokens_R: Tensor, state: State) -> Tensor:
        assert isinstance(state, DecoderState)
        width = len(tokens_R) // state.sentences
        places_R, longest = state.places(tokens_R)
        keep_B1WP = state.extend(width)
        x_RD = self.target_embedding(tokens_R, places_R, longest)
        for layer, kept in zip(self.decoder, state.layers, strict=True):
            x_RD = cast(DecoderLayer, layer).step(x_RD, kept, keep_B1WP, state.keep_B11S, width)
        return self.output(self.decoder_norm(x_RD))  # type: ignore[no-any-return]
