"""Decoding: from a source text to its translations, one token at a time.

`translator.py` turns texts into tokens and back, an engine searches, and `search.py` is the search of our own engine.
"""
