"""The examination of a corpus: what is wrong with its files and pairs, line by line, and a clean copy.

It reads the same formats as `text`, and reports faults of a file instead of raising errors.
"""
