"""Decoding: from a source text to its translations, one token at a time.

`translator.py` turns texts into tokens and back, and an engine searches; `search.py` is the search of the PyTorch
engine.
"""
