"""The encoder-decoder of "Attention Is All You Need", one importable class per part of the paper, and its predecessors.

Layers receive numbers, never settings; only `build.py` turns settings into a model. Sequences are packed, end to end
without padding, and only attention lays them out as a rectangle.
"""
