"""The queue in front of a model: what waits, what is searched together, and who gives up."""
