"""Corpora known by name: download them, unpack them, or generate them."""
