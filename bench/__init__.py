"""Measurements, each beside what others do, in one run."""
