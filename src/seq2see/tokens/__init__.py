"""Tokens: tokenizers, the tokenised corpus on disk, the choice of validation pairs, and packed batches.

Strings end here: a tokenizer turns the sides of pairs into ids, the store keeps the ids on disk, and batches cut them
to a token budget.
"""
