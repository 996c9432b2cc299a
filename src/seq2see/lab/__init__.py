"""The lab measures claims of "Attention Is All You Need" and related papers with small experiments.

`claims` has one module for each claim, `runner` measures and stores every trial, `claim` judges the claims by the
numbers alone, and `report` writes the reports.
"""
