"""The lab measures the claims of the paper.

`claims` has one module for each claim, `runner` measures and stores every trial, `claim` judges the claims by the
numbers alone, and `report` writes the reports.
"""
