"""Pictures: those of textbooks, the architecture of a model, learning curves, and the inside of a translation."""
