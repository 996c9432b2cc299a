"""Pictures: the textbook ones, the plan of a model, learning curves, and the inside of one translation."""
