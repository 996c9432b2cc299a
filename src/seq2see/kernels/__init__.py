"""Low-level computation: the number of threads on a CPU, calls in other processes, and Triton kernels for CUDA GPUs.

The kernels are packed attention, linear layers, operations on whole rows, and one step of a search. They are imported
only on machines with CUDA and Triton, which `loading` checks. Each kernel computes the same as the model's plain
PyTorch code, up to rounding, and the tests compare the two.
"""
