"""Benchmarks that compare transduce with other libraries in the same run."""
