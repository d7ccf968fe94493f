"""Ways to run a model: torch on any device, CUDA graphs on a GPU, CTranslate2."""
