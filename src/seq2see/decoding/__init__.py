"""The decoding room: from a source to its translations, one token at a time.

`search.py` knows only the start/step contract of `model.interface`; `translator.py` puts strings on both ends.
"""
