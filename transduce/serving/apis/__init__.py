"""What clients speak: our own API, those of LibreTranslate and DeepL, documents and the page."""
