"""Guards against clients that are slow, large, many, too fast or unknown."""
