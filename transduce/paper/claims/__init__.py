"""What the paper and its readers say about the Transformer, each as a small experiment."""
