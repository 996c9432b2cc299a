"""The model room: the encoder-decoder of "Attention Is All You Need", one small importable piece per part of the paper.

Layers receive numbers, never settings; `build.py` is the one place where settings become a model. Sequences travel
packed, end to end without padding, and only attention lays them out as a rectangle.
"""
