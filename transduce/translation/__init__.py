"""Translation: text in, text out (§6.1)."""
