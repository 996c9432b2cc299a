"""What goes on inside a model: record its activations by name, answer questions about them, draw the answers."""
