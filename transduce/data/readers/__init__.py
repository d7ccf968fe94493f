"""Read sentence pairs from files of many formats."""
