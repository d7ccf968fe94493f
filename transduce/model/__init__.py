"""The Transformer (§3): token ids to logits. It knows nothing of text, files, devices or losses."""
