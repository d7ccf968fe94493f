"""What of a text must not be translated: tags, placeholders, addresses and code, as patterns."""

from __future__ import annotations

import re

from transduce.translation.tag_tree import Range

# An address contains no quotation marks and no full-width full stop or comma.
_IN_URL = r"[^\s<>\"()\u00ab\u00bb\u2018-\u201f\u3001-\u303f\uff01-\uff0f\uff1a-\uff20]"
_IN_BRACES = r"[^{}]*+"
for _ in range(5):  # the depth of nested braces
    _IN_BRACES = rf"(?:[^{{}}]|\{{{_IN_BRACES}\}})*+"

# The sizes, in characters, from which nobody expects a translation: a word such as a key in base64,
# and a run of anything but spaces, such as a minified file.
LONG_WORD = 200
LONG_RUN = 1000
# A run ends at tags, and in scripts without spaces between words: South-East and East Asia.
_NOT_IN_RUN = (
    r"\s<>\u0e00-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
)
# It is tried at its start and not again at each of its characters.
LONG = (
    rf"(?P<long_word>(?<![^{_NOT_IN_RUN}])[^{_NOT_IN_RUN}]{{{LONG_RUN},}}"
    rf"|[A-Za-z0-9+/=_\u00c0-\u052f-]{{{LONG_WORD},}})"
)
# A tag ends at the next >, but for one in the quoted value of an attribute.
_VALUE = r"=\s{0,4}(?:\"[^\"<]{0,2000}\"|'[^'<]{0,2000}')"
ATTRIBUTES = rf"(?:\s(?:{_VALUE}|[^<>])*+)?"
# Those of an element that must not be translated.
_KEPT = (
    r"\s(?i:translate\s{0,4}=\s{0,4}[\"']?no\b"
    r"|class\s{0,4}=\s{0,4}[\"']?[^\"'<>]{0,300}(?<![\w-])notranslate(?![\w-]))"
)
_IN_KEPT = r"(?:(?!</?(?P=kept)\b).){0,10000}+"
for _ in range(3):  # the depth of elements with the same name
    _IN_KEPT = (
        rf"(?:(?!</?(?P=kept)\b).|<(?P=kept)\b[^<>]*>{_IN_KEPT}</(?P=kept)\s{{0,4}}>){{0,10000}}+"
    )
# Every repetition is bounded or ends at the next possible start, so matching takes linear time.
MARKUP = (
    # The content of these elements is code, and stays as it is.
    r"<(?P<code>code|pre|script|style|kbd|samp|var|tt|math|svg)\b[^<>]*>"
    r"(?:(?!<(?P=code)\b).){0,10000}?</(?P=code)\s{0,4}>"
    rf"|<(?P<kept>[A-Za-z][\w:.-]*)(?=[^<>]*?{_KEPT}){ATTRIBUTES}>{_IN_KEPT}</(?P=kept)\s{{0,4}}>"
    r"|<!\[CDATA\[.{0,10000}?\]\]>|<%.{0,1000}?%>|<\?.{0,1000}?\?>"
    # Blocks of code in Markdown, between lines that begin with ``` or ~~~.
    r"|(?m:^)[ \t]{0,3}(?P<fence>```|~~~)[^\n`]{0,100}\n(?:[^\n]{0,1000}\n){0,200}?"
    r"[ \t]{0,3}(?P=fence)[ \t]{0,3}(?m:$)"
    rf"|(?P<tag><!--(?:(?!<!--).)*?-->|</?[A-Za-z][\w:.-]*{ATTRIBUTES}/?>"
    # Numbered tags of catalogues (<0>here</0>), and times within subtitles (<00:00:01.500>).
    r"|</?\d{1,3}/?>|<\d\d:[\d:.]{6,12}>|\*\*|~~)"
    rf"|(?<![A-Za-z0-9])(?i:(?:https?|ftp)://|www\.)(?:{_IN_URL}|\({_IN_URL}*\))+(?<![.,;:!?'*_])"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"
    r"|\{\{[^{}]*\}\}|\$\{[^{}]*\}|\{ {0,4}[^{}\s]* {0,4}\}|(?<![\w$])\$[A-Za-z_]\w{0,63}"
    # ICU messages, which may be nested: {n, plural, one {# file} other {# files}}.
    r"|\{\s{0,4}\w{1,64}\s{0,4},\s{0,4}"
    r"(?:plural|select|selectordinal|number|date|time|spellout|ordinal|duration)\b"
    rf"{_IN_BRACES}\}}"
    r"|%%|%(?:\d{1,3}\$|\(\w{1,64}\))?[-+#0']{0,4}(?:\d{1,4}|\*)?(?:\.\d{1,4})?(?:hh?|ll?|[Lqjzt])?"
    r"[diouxXeEfFgGaAcspn@](?![A-Za-z])"
    r"|&(?:\#\d{1,7}|\#x[0-9A-Fa-f]{1,6}|[A-Za-z]\w{1,31});"
    # Paths of Windows, which begin with a drive or have a backslash that is no escape.
    r"|(?<![\w.\\-])(?:[A-Za-z]:(?=\\)|(?=[\w.\\-]{0,200}\\(?![nrt])\w))[\w.-]{0,64}(?:\\[\w.-]{0,64})+"
    # Escapes that are written out, parameters such as :name, and the signs of Markdown.
    r"|\\[nrt\"']|(?<![\w:/.]):[A-Za-z_]\w{0,63}(?![\w:/])"
    r"|`[^`\n]{1,500}`|(?<=\])\([^()\s]{1,2000}\)"
    # Signs between words, and numbers with hard spaces.
    r"|(?<=[^\W\d] )[<>]=?(?= [^\W\d])|\d{1,3}(?:[\u00a0\u202f]\d{3})+(?!\d)"
)
PROTECTED = re.compile(f"{LONG}|{MARKUP}", re.DOTALL)
# Every match of this pattern contains one of these, begins with www., or is a long word. Most
# texts have none, and looking for them is many times faster.
_TELLTALE = re.compile(r"[<>*~@{$%&\\`:\]\u00a0\u202f]")


def find(text: str, pattern: re.Pattern[str] = PROTECTED) -> list[Range]:
    """Return the start and end of everything that `protect` takes out with this pattern."""
    if pattern is PROTECTED and not may_match(text):
        return []
    return [match.span() for match in pattern.finditer(text)]


def may_match(text: str) -> bool:
    """Return False if a text surely contains nothing to protect."""
    if _TELLTALE.search(text) or "www." in text.lower():
        return True
    return len(text) >= LONG_WORD and max(map(len, text.split()), default=0) >= LONG_WORD
