"""A model in formats that other programs run, each checked against our own engine."""
