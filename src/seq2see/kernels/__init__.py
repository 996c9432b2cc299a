"""How operations are computed: the number of threads on a CPU, and Triton kernels for CUDA GPUs.

The kernels are packed attention, operations on whole rows, and the steps of a search. None of them is imported on a
machine without CUDA and Triton; `loading` decides that. Each kernel computes what the
model's plain PyTorch code computes, and the tests compare the two.
"""
