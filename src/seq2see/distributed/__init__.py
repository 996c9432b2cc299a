"""Several processes that work together: everything that depends on torchrun.

Training, evaluation and translation join the group of processes with `ranks.joined`. Without torchrun it is a group of
one, which communicates with nobody.
"""
