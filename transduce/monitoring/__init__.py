"""Show a training run: terminal, metrics.jsonl, HTML report, TensorBoard."""
