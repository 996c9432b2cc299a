"""The inside of a model: record its activations by name, answer questions about them, draw the answers."""
