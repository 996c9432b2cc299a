"""The inside of a model: record its activations by name, change them, and answer questions about them."""
