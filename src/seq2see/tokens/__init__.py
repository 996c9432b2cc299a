"""Tokens: tokenizers, the tokenised corpus on disk, its word alignment, and packed batches.

A tokenizer turns both sides of a pair into ids, the store keeps them on disk, and batches are filled up to a token
budget. Model and training then handle ids, not strings.
"""
