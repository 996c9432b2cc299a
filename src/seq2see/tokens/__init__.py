"""Tokens: tokenizers, the tokenised corpus on disk, the choice of validation pairs, and packed batches.

Modules after this package handle ids, not strings: a tokenizer turns both sides of a pair into ids, the store keeps
them on disk, and batches are filled up to a token budget.
"""
