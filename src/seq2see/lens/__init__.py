"""The lens room: what goes on inside one's own model. It captures the inner tensors by name, answers questions about
them, and draws the answers."""
