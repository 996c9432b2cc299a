"""Import and export models in the formats of other programs; each export is checked against our own engine."""
