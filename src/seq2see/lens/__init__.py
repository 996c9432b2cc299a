"""Record the activations of a model by name, change them, and explain its translations by them."""
