"""Several processes that work together: everything that depends on torchrun.

Training, evaluation and translation call the functions of `ranks`, which do nothing where there is one process.
"""
