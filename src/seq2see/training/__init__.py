"""Training: loss, learning rate schedule, optimizer, checkpoints, and the loop that trains a model on batches.

The loop is a generator of events; the code that consumes it draws, logs and decides when to stop. It never imports
decoding: validation is a function that is passed to it.
"""
