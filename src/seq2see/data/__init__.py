"""The data room: from a file of pairs to packed batches of tokens.

Strings end at the store: readers yield `Pair`s, a tokenizer turns their sides into ids, the store keeps the ids on
disk, and batches cut them to a token budget.
"""
