"""The encoder-decoder of "Attention Is All You Need", one importable class per part of the paper, and its predecessors.

Layers receive numbers, never settings; only `build.py` turns settings into a model. Models work on packed
sequences: their rows follow each other without padding. Only RNNs, and attention where our GPU kernels cannot be used,
lay them out as padded tensors.

Names of tensors end in their shape: B batch, N packed tokens, S source length, T target length, L queries, M positions
attended to, P positions of the key-value cache, D model width, F feed-forward width, H heads, K width per head, V
vocabulary, W beam width, R = B x W.
"""
