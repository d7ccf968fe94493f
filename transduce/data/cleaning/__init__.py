"""Find and drop sentence pairs that would teach the model something wrong."""
