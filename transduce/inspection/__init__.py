"""Looking inside a translation: attention, heads switched off, and the search as it went."""
