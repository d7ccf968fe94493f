"""Plain text: one text, whose line ends, blank lines and indents the translator keeps."""

from __future__ import annotations

from transduce.translation.documents.job import Job
from transduce.translation.documents.text_encoding import decode


def translate_plain_text(job: Job) -> bytes:
    """Translate a text file."""
    text, encoding = decode(job.data, job.name)
    [translation] = job.translate([text])
    return encoding.encode(translation)
