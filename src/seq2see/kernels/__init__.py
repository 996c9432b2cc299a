"""Triton kernels for CUDA GPUs: packed attention, operations on whole rows, and the steps of a search.

Nothing here is imported on a machine without CUDA and Triton; `loading` decides that. Each kernel computes what the
model's plain PyTorch code computes, and the tests compare the two.
"""
