"""Formulas as MathML, which browsers draw without a library."""

from __future__ import annotations

from html import escape

NAMESPACE = "http://www.w3.org/1998/Math/MathML"


class Markup(str):
    """A part of a formula that is MathML already."""

    __slots__ = ()


def formula(*lines: str | Markup | tuple[str | Markup, ...]) -> str:
    """Return a formula; each line is one part or a tuple of parts, and stands on its own row."""
    rows = [row(*line) if isinstance(line, tuple) else row(line) for line in lines]
    if len(rows) == 1:
        return f'<math xmlns="{NAMESPACE}" display="block">{rows[0]}</math>'
    table = "".join(f"<mtr><mtd>{content}</mtd></mtr>" for content in rows)
    return f'<math xmlns="{NAMESPACE}" display="block"><mtable>{table}</mtable></math>'


def row(*parts: str | Markup) -> Markup:
    """Return parts side by side. Plain text is a name, a number or an operator."""
    return Markup(f"<mrow>{''.join(map(_element, parts))}</mrow>")


def sub(base: str | Markup, index: str | Markup) -> Markup:
    """Return a part with an index."""
    return Markup(f"<msub>{_element(base)}{_element(index)}</msub>")


def sup(base: str | Markup, exponent: str | Markup) -> Markup:
    """Return a part with an exponent."""
    return Markup(f"<msup>{_element(base)}{_element(exponent)}</msup>")


def subsup(base: str | Markup, index: str | Markup, exponent: str | Markup) -> Markup:
    """Return a part with an index and an exponent."""
    return Markup(f"<msubsup>{_element(base)}{_element(index)}{_element(exponent)}</msubsup>")


def fraction(above: str | Markup, below: str | Markup) -> Markup:
    """Return one part over another."""
    return Markup(f"<mfrac>{_element(above)}{_element(below)}</mfrac>")


def root(content: str | Markup) -> Markup:
    """Return the square root of a part."""
    return Markup(f"<msqrt>{_element(content)}</msqrt>")


def words(text: str) -> Markup:
    """Return words inside a formula."""
    return Markup(f"<mtext>{escape(text)}</mtext>")


def call(name: str, *arguments: str | Markup) -> Markup:
    """Return a function with its arguments in parentheses."""
    parts: list[str | Markup] = []
    for number, argument in enumerate(arguments):
        parts += [",", argument] if number else [argument]
    return row(name, "(", *parts, ")")


def _element(part: str | Markup) -> str:
    if isinstance(part, Markup):
        return part
    if part.replace(".", "", 1).isdecimal():
        return f"<mn>{escape(part)}</mn>"
    if part.isalnum():
        return f"<mi>{escape(part)}</mi>"
    return f"<mo>{escape(part)}</mo>"
