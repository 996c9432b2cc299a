"""Several processes that work together: everything that depends on torchrun.

Training, evaluation and translation call the functions of `ranks`, which do nothing if there is only one process.
"""
