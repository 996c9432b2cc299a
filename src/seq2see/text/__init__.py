"""Text: files of sentence pairs in every format, corpora by name, and names of languages.

Everything here works on strings and yields `Pair`s. Nothing knows of tokens or models.
"""
