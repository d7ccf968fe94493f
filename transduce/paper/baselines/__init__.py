"""The rivals of Table 2, small and readable, trained and searched as the Transformer is."""
