"""PyTorch's own nn.Transformer, with embeddings and output layer as its tutorials put them around it; our weights."""

import math
from pathlib import Path

import torch
import work
from candidates.padded import Padded
from safetensors.torch import load_file
from torch import Tensor, nn


class Candidate(Padded):
    def __init__(self, size: work.Size, weights: Path, tuned: bool) -> None:
        self.model = Model(size, load_file(weights / "model.safetensors"))
        if tuned:  # it also drops attention weights and inner activations, which the others do not
            for layer in self.model.modules():
                if isinstance(layer, nn.MultiheadAttention):
                    layer.dropout = 0.0
                elif isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                    layer.dropout.p = 0.0
        self.start_training(tuned)

    def logits(self, source: Tensor, inputs: Tensor) -> Tensor:
        return self.model(source, inputs)


class Model(nn.Module):
    def __init__(self, size: work.Size, ours: dict[str, Tensor]) -> None:
        super().__init__()
        options = (size.d_model, size.heads, size.d_ff, work.DROPOUT)
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(*options, batch_first=True), size.layers)
        decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*options, batch_first=True), size.layers)
        self.stacks = nn.Transformer(
            size.d_model, size.heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
        )
        self.tokens = nn.Embedding(size.vocabulary, size.d_model, padding_idx=work.PAD)
        self.output = nn.Linear(size.d_model, size.vocabulary)
        self.dropout = nn.Dropout(work.DROPOUT)
        self.register_buffer("waves", work.waves(512, size.d_model))
        self.tokens.weight.data = ours["source_embedding.tokens.weight"]
        self.output.weight = self.tokens.weight
        self.output.bias.data = ours["output.bias"]
        names = {
            "self_attention.w_qkv.": "self_attn.in_proj_",
            "self_attention.w_o.": "self_attn.out_proj.",
            "cross_attention.w_qkv.": "multihead_attn.in_proj_",
            "cross_attention.w_o.": "multihead_attn.out_proj.",
            "feed_forward.w_": "linear",
            "around_attention.norm.": "norm1.",
            "around_self.norm.": "norm1.",
            "around_cross.norm.": "norm2.",
        }
        theirs = {}
        for name, weight in ours.items():
            if name.startswith(("encoder.", "decoder.")):
                stack, number, rest = name.split(".", 2)
                rest = rest.replace("around_feed_forward.norm", "norm2" if stack == "encoder" else "norm3")
                for ours_is, theirs_is in names.items():
                    rest = rest.replace(ours_is, theirs_is)
                theirs[f"{stack}.layers.{number}.{rest}"] = weight
        self.stacks.load_state_dict(theirs)

    def forward(self, source: Tensor, inputs: Tensor) -> Tensor:
        hidden = self.stacks(
            self._embed(source),
            self._embed(inputs),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(inputs.shape[1], inputs.device),
            src_key_padding_mask=_hide(source),
            tgt_key_padding_mask=_hide(inputs),
            memory_key_padding_mask=_hide(source),
            tgt_is_causal=True,
        )
        return self.output(hidden)

    def _embed(self, tokens: Tensor) -> Tensor:
        scaled = self.tokens(tokens) * math.sqrt(self.tokens.embedding_dim)
        return self.dropout(scaled + self.waves[: tokens.shape[1]])


def _hide(tokens: Tensor) -> Tensor:
    return torch.zeros(tokens.shape, device=tokens.device).masked_fill(tokens == work.PAD, -math.inf)
