"""Elements of a page: HTML of sections, tables, figures and lists."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

#: Columns of which there may be more only in smaller type.
MANY = 10


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table.

    Attributes
    ----------
    cells : sequence of str
        Text; the first one heads the row.
    slow : bool
        Whether it is to be noticed.
    """

    cells: Sequence[str]
    slow: bool = False


def section(title: str, *parts: str) -> str:
    """A section with a heading.

    Parameters
    ----------
    title : str
        Text.
    *parts : str
        HTML.

    Returns
    -------
    str
        HTML.
    """
    return "\n".join((f"<section>\n<h2>{escape(title)}</h2>", *parts, "</section>"))


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph.

    Parameters
    ----------
    text : str
        Text.
    kind : str
        "caption" for one that belongs to what follows.

    Returns
    -------
    str
        HTML.
    """
    opening = f'<p class="{kind}">' if kind else "<p>"
    return f"{opening}{escape(text)}</p>"


def facts(of: Mapping[str, str], *, wide: Sequence[str] = ()) -> str:
    """Names and values, side by side.

    Parameters
    ----------
    of : mapping of str to str
        Text; what is empty is left out.
    wide : sequence of str
        Names of those whose values are long.

    Returns
    -------
    str
        HTML.
    """
    pairs = (_fact(name, value, name in wide) for name, value in of.items() if value)
    return "\n".join(('<dl class="facts">', *pairs, "</dl>"))


def _fact(name: str, value: str, wide: bool) -> str:
    kind = ' class="wide"' if wide else ""
    return f"<div{kind}><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def advice(sentences: Iterable[str]) -> str:
    """Advice, a box each.

    Parameters
    ----------
    sentences : iterable of str
        Text.

    Returns
    -------
    str
        HTML.
    """
    return "\n".join(
        ('<ul class="advice">', *(f"<li>{paragraph(text)}</li>" for text in sentences), "</ul>")
    )


def figure(title: str, caption: str, svg: str) -> str:
    """A figure under its title and caption.

    Parameters
    ----------
    title, caption : str
        Text.
    svg : str
        Of `inline_svg`.

    Returns
    -------
    str
        HTML.
    """
    said = f"<figcaption><h3>{escape(title)}</h3>{paragraph(caption)}</figcaption>"
    return f'<figure>\n{said}\n<div class="wide-content">{svg}</div>\n</figure>'


def table(
    columns: Sequence[str], rows: Iterable[Row], *, caption: str = "", text: Sequence[int] = ()
) -> str:
    """A table, that scrolls sideways on a narrow screen.

    Parameters
    ----------
    columns : sequence of str
        Titles.
    rows : iterable of Row
        As many cells each.
    caption : str
        What it holds.
    text : sequence of int
        Columns, beside the first, that hold words rather than numbers.

    Returns
    -------
    str
        HTML.
    """
    kinds = [' class="text"' if k in text else "" for k in range(len(columns))]
    heads = "".join(
        f'<th scope="col"{kind}>{escape(title)}</th>'
        for kind, title in zip(kinds, columns, strict=True)
    )
    lines = (_line(row, kinds) for row in rows)
    dense = ' class="dense"' if len(columns) > MANY else ""
    return "\n".join(
        (
            # Not of the table: it would scroll with it.
            paragraph(caption, "caption") if caption else "",
            f'<div class="wide-content"><table{dense}>',
            f"<thead><tr>{heads}</tr></thead>\n<tbody>",
            *lines,
            "</tbody></table></div>",
        )
    )


def _line(row: Row, kinds: Sequence[str]) -> str:
    first, *others = row.cells
    cells = "".join(
        f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds[1:], others, strict=True)
    )
    slow = ' class="slow"' if row.slow else ""
    return f'<tr{slow}><th scope="row">{escape(first)}</th>{cells}</tr>'
