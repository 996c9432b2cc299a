"""The lab: what the paper claims, measured here. One file holds one claim: its words, its trials, and what must come
out. `runner` measures and keeps every trial, `claim` judges by the numbers alone, `report` writes the pages."""
