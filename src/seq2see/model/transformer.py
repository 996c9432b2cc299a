"""The whole model: embeddings and positions, the two stacks, the output layer (paper, sections 3.1, 3.4, 3.5)."""

import math
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2see.model.attention import Packing, Point, Reach
from seq2see.model.interface import Memory, Seq2Seq, State
from seq2see.model.layers import DecoderLayer, Dropout, EncoderLayer
from seq2see.model.positions import sinusoid
from seq2see.model.state import DecoderState


class Embedding(nn.Module):
    """A vector for each token, scaled by sqrt(d_model), plus the wave of its place; dropout on the sum.

    Tied to the output layer, whose gradient reaches every token, it passes on the gradient of the tokens it saw as
    rows to be added there: all others would be zeros, as many as there are weights.
    """

    def __init__(self, tokens: nn.Embedding, positions: str, max_positions: int, dropout: float, tied: bool) -> None:
        super().__init__()
        self.tokens = tokens
        self.tied = tied
        self.positions = positions
        self.without_positions = Point()
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(tokens.embedding_dim)
        if positions == "learned":
            self.places = nn.Embedding(max_positions, tokens.embedding_dim)
            nn.init.normal_(self.places.weight, std=0.02)
        self.waves: Tensor
        self.register_buffer("waves", torch.zeros(0, tokens.embedding_dim), persistent=False)

    def forward(self, tokens_N: Tensor, places_N: Tensor, longest: int) -> Tensor:
        """`longest`: one more than the largest place, known to the caller without asking the device."""
        tokens_ND = F.embedding(tokens_N, self.tokens.weight, sparse=self.tied and not tokens_N.is_cuda)
        x_ND: Tensor = self.without_positions(tokens_ND * self.scale)
        if self.positions == "sinusoid":
            if longest > len(self.waves):
                self.waves = _waves(max(longest, 2 * len(self.waves), 128), x_ND.shape[-1], x_ND.device)
            x_ND = x_ND + self.waves[places_N].to(x_ND.dtype)
        elif self.positions == "learned":
            x_ND = x_ND + self.places(places_N)
        return self.dropout(x_ND)  # type: ignore[no-any-return]


class Transformer(Seq2Seq):
    """Figure 1 of the paper.

    Called with rectangles of padded token ids it returns scores for each next token, BTV; training and decoding use the
    packed `encode`, `decode`, `start` and `step` that this is made of.
    """

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
        source_tokens = nn.Embedding(source_vocabulary, d_model)
        target_tokens = source_tokens if tie == "all" else nn.Embedding(target_vocabulary, d_model)
        self.source_embedding = Embedding(source_tokens, positions, max_positions, dropout, tie == "all")
        self.target_embedding = Embedding(target_tokens, positions, max_positions, dropout, tie != "none")
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
        self.output = nn.Linear(d_model, target_vocabulary, bias=output_bias)
        if tie == "none":
            nn.init.xavier_uniform_(self.output.weight)
        else:
            self.output.weight = target_tokens.weight
        nn.init.normal_(source_tokens.weight, std=d_model**-0.5)  # times sqrt(d_model): as large as the waves
        if target_tokens is not source_tokens:
            nn.init.normal_(target_tokens.weight, std=d_model**-0.5)
        if output_bias:
            nn.init.zeros_(self.output.bias)

    def forward(self, source_BS: Tensor, inputs_BT: Tensor, padding: int = 0) -> Tensor:
        """BTV from padded rectangles; rows in the padding are zeros."""
        source_N, source_offsets = _pack_tokens(source_BS, padding)
        inputs_N, offsets = _pack_tokens(inputs_BT, padding)
        hidden_ND = self.decode(inputs_N, offsets, self.encode(source_N, source_offsets))
        logits_NV: Tensor = self.output(hidden_ND)
        logits_BTV = logits_NV.new_zeros(*inputs_BT.shape, logits_NV.shape[-1])
        return logits_BTV.masked_scatter((inputs_BT != padding)[:, :, None], logits_NV)

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

    def step(self, tokens_R: Tensor, state: State) -> Tensor:
        assert isinstance(state, DecoderState)
        place, width = state.length, len(tokens_R) // state.sentences
        keep_B1WP = state.extend(width)
        x_RD = self.target_embedding(tokens_R, torch.full_like(tokens_R, place), place + 1)
        for layer, kept in zip(self.decoder, state.layers, strict=True):
            x_RD = cast(DecoderLayer, layer).step(x_RD, kept, keep_B1WP, state.keep_B11S, width)
        return self.output(self.decoder_norm(x_RD))  # type: ignore[no-any-return]


@lru_cache(maxsize=64)  # a recorded pass goes on reading those that it was recorded with
@torch.inference_mode(False)  # waves first asked for while decoding must serve training, too
def _waves(length: int, d_model: int, device: torch.device) -> Tensor:
    return sinusoid(length, d_model, device)


def _pack_tokens(tokens_BL: Tensor, padding: int) -> tuple[Tensor, Tensor]:
    keep_BL = tokens_BL != padding
    offsets = nn.functional.pad(keep_BL.sum(1).cumsum(0), (1, 0)).cpu()
    return tokens_BL[keep_BL], offsets
