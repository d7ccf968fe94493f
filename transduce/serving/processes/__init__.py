"""Several processes for HTTP in front of one that searches."""
