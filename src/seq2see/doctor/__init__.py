"""The examination of a corpus: what is wrong with its files and pairs, line by line, and a clean copy.

It reads what `text` reads, and never fails on what it finds.
"""
