"""The HTTP server: its own API and those of LibreTranslate and DeepL, a queue, and limits."""
