"""Hook of MkDocs: render formulas as MathML, which browsers show without scripts or fonts."""

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

#: What pymdownx.arithmatex makes of $…$ and $$…$$.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html: str, **kwargs: Any) -> str:
    """Replace the LaTeX of a page."""
    return FORMULA.sub(_rendered, html)


def _rendered(found: re.Match[str]) -> str:
    if found[1] == "span":
        return convert(unescape(found[2]), display="inline")
    return f'<div class="formula">{convert(unescape(found[2]), display="block")}</div>'
