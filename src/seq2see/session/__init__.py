"""One training, from pairs to report. `train.py` shows it from top to bottom; the other modules are called by it."""
