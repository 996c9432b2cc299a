"""Training: loss, learning rate schedule, optimizer, checkpoints, and the loop that trains a model on batches.

The loop is a generator of events; whoever consumes it draws, logs and decides to stop. It never imports decoding:
validation is a function handed to it.
"""
