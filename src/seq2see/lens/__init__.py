"""The inside of a model: record its activations by name, change them, and compute explanations from them."""
