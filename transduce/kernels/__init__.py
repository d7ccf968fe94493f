"""Speed put around the model from outside: all Triton kernels with their launchers, and oneDNN."""
