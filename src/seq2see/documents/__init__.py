"""Real text around the sentences that a model translates: what has to be found in it, kept, and put back."""
