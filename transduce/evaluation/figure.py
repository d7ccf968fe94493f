"""A chart of BLEU by the length of the source, as an SVG file."""

from __future__ import annotations

from html import escape

from transduce.evaluation.report import Report

# Colours that people with any colour vision can tell apart (Okabe and Ito, 2008).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
WIDTH = 640
LEFT = 48  # of the plot; the right margin is as wide
HEIGHT = 220  # of the plot
TOP = 44  # of the plot, under the title
LINE = 20  # of the legend
STYLE = "font-family:Helvetica,Arial,sans-serif;font-size:13px"


def length_chart(report: Report) -> str:
    """Return a bar for each system and group of sentences, as a complete SVG file."""
    groups = [system.by_length for system in report.systems]
    highest = max(group.bleu for groups_of_system in groups for group in groups_of_system)
    # The axis ends at a multiple of ten.
    top = max(10, -int(-highest // 10) * 10)
    parts = [_text(LEFT, 24, "BLEU by the number of words of the source", weight="bold")]
    for bleu in range(0, top + 1, 10):
        y = TOP + HEIGHT * (1 - bleu / top)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - LEFT}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, y + 4, str(bleu), "end"))

    # The bars of a group stand side by side, with a gap between groups.
    slot = (WIDTH - 2 * LEFT) / len(groups[0])
    bar = 0.8 * slot / len(groups)
    for index, members in enumerate(zip(*groups, strict=True)):
        start = LEFT + slot * (index + 0.1)
        for number, group in enumerate(members):
            height = HEIGHT * group.bleu / top
            parts.append(
                f'<rect x="{start + bar * number:.1f}" y="{TOP + HEIGHT - height:.1f}" '
                f'width="{bar:.1f}" height="{height:.1f}" fill="{_colour(number)}">'
                f"<title>{group.bleu:.2f}</title></rect>"
            )
        middle = LEFT + slot * (index + 0.5)
        parts.append(_text(middle, TOP + HEIGHT + 18, members[0].name, "middle"))
        count = f"{members[0].sentences:,} sentences"
        parts.append(_text(middle, TOP + HEIGHT + 36, count, "middle", size=11))

    # The legend.
    legend = TOP + HEIGHT + 64
    for number, system in enumerate(report.systems):
        y = legend + LINE * number
        square = f'x="{LEFT}" y="{y - 10}" width="12" height="12"'
        parts.append(f'<rect {square} fill="{_colour(number)}"/>')
        parts.append(_text(LEFT + 20, y, f"{system.name}: {system.scores['bleu'].value:.2f}"))
    height = legend + LINE * len(report.systems)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img" style="{STYLE}" '
        'aria-label="BLEU by the number of words of the source">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _text(
    x: float, y: float, text: str, anchor: str = "start", *, weight: str = "normal", size: int = 13
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}">{escape(text)}</text>'
    )
