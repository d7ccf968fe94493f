"""Handing a bundle over to other runtimes, each export checked while it is made."""
