"""The sentences of the paper's appendix and of its authors' talks, for figures and claims."""

SENTENCES = {
    "long-distance": (
        "It is in this spirit that a majority of American governments have passed new laws since "
        "2009 making the registration or voting process more difficult."
    ),
    "anaphora": (
        "The Law will never be perfect, but its application should be just - this is what we are "
        "missing, in my opinion."
    ),
    "tired": "The animal didn't cross the street because it was too tired.",
    "wide": "The animal didn't cross the street because it was too wide.",
}
