"""Training: loss, learning rate schedule, optimizer, checkpoints, and the loop that trains a model on batches.

The loop is a generator of events; the code that consumes them draws, logs and decides when to stop. The loop never
imports the package `decoding`: validation is a function that is passed to it.
"""
