"""Searches with a standard model on a GPU: fixed shapes, CUDA graphs, continuous batching."""
