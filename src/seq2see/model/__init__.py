"""The encoder-decoder of "Attention Is All You Need", one importable class per part of the paper, and its predecessors.

Layers receive numbers, never settings; only `build.py` turns settings into a model. Sequences are packed, end to end
without padding, and only attention lays them out as a rectangle.

Names of tensors end in their shape: B batch, N packed tokens, S source length, T target length, L queries, M positions
attended to, D model width, F feed-forward width, H heads, K width per head, V vocabulary, W beam width, R = B x W.
"""
