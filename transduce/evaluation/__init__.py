"""Scores of a test set."""
