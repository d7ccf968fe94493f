"""Looking for a translation (§6.1): greedy, beam and sampling over any next-token function."""
