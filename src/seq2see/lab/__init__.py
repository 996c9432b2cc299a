"""The claims of the paper, measured: `claims` has one module for each claim, `runner` measures and keeps every trial,
`claim` judges by the numbers alone, and `report` writes the reports."""
