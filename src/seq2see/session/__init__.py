"""One training, from reading pairs to writing the report. `train.py` shows all steps; it calls the other modules."""
