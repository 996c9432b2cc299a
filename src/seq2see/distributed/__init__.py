"""Several processes that work together: everything that knows of torchrun.

Training, evaluation and translation call the functions of `ranks`, which do nothing where there is one process.
"""
