"""Every table, figure and claim of the paper as an experiment that one command runs."""
