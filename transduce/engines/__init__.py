"""Ways to run a model: torch on any device, CUDA graphs for standard models on a GPU, CTranslate2."""
