"""From raw parallel text to packed token batches. It knows nothing of the model."""
