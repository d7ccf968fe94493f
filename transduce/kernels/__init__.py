"""Fused kernels, put around the model from outside: Triton on a GPU, oneDNN on a CPU.

`accelerate` decides which parts of a model are fused, and `fused` has their fused forms.
"""
