"""The training room: loss, schedule, optimizer, checkpoints, and the loop that pulls batches through a model.

The loop is a generator of events; whoever consumes it draws, logs and decides to stop. It never imports decoding:
validation is a function handed to it.
"""
