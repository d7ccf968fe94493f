"""Greedy search, beam search and sampling over any next-token function (§6.1)."""
