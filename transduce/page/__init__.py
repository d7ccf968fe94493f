"""The browser page that transduce serve shows, and the same page as one file."""
