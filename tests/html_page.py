"""What a page of HTML consists of, for tests: its elements, attributes and text."""

from html.parser import HTMLParser

HOSTILE = "</pre><script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;"
OURS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "header",
    "h1",
    "h2",
    "p",
    "section",
    "div",
    "dl",
    "dt",
    "dd",
}
OURS |= {
    "figure",
    "figcaption",
    "span",
    "b",
    "svg",
    "line",
    "text",
    "g",
    "polyline",
    "circle",
    "table",
    "thead",
    "tbody",
}
OURS |= {"tr", "th", "td", "details", "summary", "pre"}
VOID = {"img", "meta"}


class Page(HTMLParser):
    """The elements, attributes and text of a page; elements must be closed in order."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text, self._open = set(), set(), "", []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data
