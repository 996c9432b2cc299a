"""The whole model: embeddings and positions, the two stacks, the output layer (paper, sections 3.1, 3.4, 3.5)."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from seq2see.model.attention import Packing, Reach
from seq2see.model.interface import Memory, Seq2Seq, State
from seq2see.model.layers import DecoderLayer, EncoderLayer
from seq2see.model.state import DecoderState, FixedState


class Transformer(Seq2Seq):
    """Figure 1 of the paper."""

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        encoder_layers: int = 6,
        decoder_layers: int = 6,
        d_model: int = 512,
        heads: int = 8,
        d_ff: int = 2048,
        dropout: float = 0.1,
        d_key: int = 0,
        d_value: int = 0,
        activation: str = "relu",
        norm: str = "post",
        norm_epsilon: float = 1e-5,
        positions: str = "sinusoid",
        max_positions: int = 1024,
        tie: str = "all",
        output_bias: bool = False,
    ) -> None:
        super().__init__()
        self.make_embeddings(source_vocabulary, target_vocabulary, d_model, dropout, tie, positions, max_positions)
        options: dict[str, Any] = {
            "d_key": d_key,
            "d_value": d_value,
            "activation": activation,
            "norm": norm,
            "norm_epsilon": norm_epsilon,
            "rotary": positions == "rotary",
        }
        self.encoder = nn.ModuleList(
            EncoderLayer(d_model, heads, d_ff, dropout, **options) for _ in range(encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(d_model, heads, d_ff, dropout, **options) for _ in range(decoder_layers)
        )
        # Pre-norm leaves the stream itself without a norm: one at the end of each stack. Post-norm has it already.
        self.encoder_norm = nn.LayerNorm(d_model, eps=norm_epsilon) if norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model, eps=norm_epsilon) if norm == "pre" else nn.Identity()
        self.make_output(tie, output_bias)

    def encode(self, source_N: Tensor, offsets: Tensor | Packing) -> Memory:
        packing = offsets if isinstance(offsets, Packing) else Packing(offsets, source_N.device)
        reach = Reach.packed(packing, packing)
        x_ND = self.source_embedding(source_N, packing.places_N, packing.longest)
        for layer in self.encoder:
            x_ND = layer(x_ND, reach)
        return Memory(self.encoder_norm(x_ND), packing)

    def decode(self, inputs_N: Tensor, offsets: Tensor | Packing, memory: Memory) -> Tensor:
        packing = offsets if isinstance(offsets, Packing) else Packing(offsets, inputs_N.device)
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

    def refill(self, state: FixedState, source_N: Tensor, places_N: Tensor, rows_B1: Tensor) -> None:
        """Encode B new sentences into a state, in shapes that depend on how many rows there are, and not on which.

        Args:
            source_N: the sentences' tokens one after the other, then anything.
            rows_B1: B + 1 numbers: where each begins.
        """
        assert state.keep_B11S is not None
        packing = Packing.fixed(rows_B1.to(torch.int32), places_N, state.keep_B11S.shape[3])
        states_ND = self.encode(source_N, packing).states_ND
        state.fill_all(
            rows_B1, (cast(DecoderLayer, layer).cross_attention.of_memory(states_ND) for layer in self.decoder)
        )

    def fixed_state(self, B: int, W: int, S: int, T: int) -> FixedState:
        """Room for B sentences of S tokens, W hypotheses of T tokens each."""
        attention = cast(DecoderLayer, self.decoder[0]).cross_attention
        like_HK = attention.w_qkv.weight.new_empty(attention.heads, attention.d_key)
        return FixedState.empty(len(self.decoder), B, W, S, T, like_HK)

    def step(self, tokens_R: Tensor, state: State) -> Tensor:
        assert isinstance(state, DecoderState)
        width = len(tokens_R) // state.sentences
        places_R, longest = state.places(tokens_R)
        keep_B1WP = state.extend(width)
        x_RD = self.target_embedding(tokens_R, places_R, longest)
        for layer, kept in zip(self.decoder, state.layers, strict=True):
            x_RD = cast(DecoderLayer, layer).step(x_RD, kept, keep_B1WP, state.keep_B11S, width)
        return self.output(self.decoder_norm(x_RD))  # type: ignore[no-any-return]
