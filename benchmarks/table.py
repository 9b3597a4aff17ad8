"""Tables as aligned text for people, or tab-separated text for programs."""

from dataclasses import dataclass, field


@dataclass
class Table:
    """Rows of cells under headings."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def render(self, tsv: bool) -> str:
        """Return the table as text; columns of numbers are right-aligned unless `tsv`."""
        if tsv:
            lines = ["\t".join(cells) for cells in (self.headings, *self.rows)]
            return "\n".join([f"# {self.title}", *lines])
        columns = [_aligned(column) for column in zip(self.headings, *self.rows, strict=True)]
        lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
        return "\n".join([self.title, *lines])

    def markdown(self) -> str:
        """Return the table as Markdown, with its title above."""
        lines = [self.headings, ["---"] * len(self.headings), *self.rows]
        return "\n".join([f"{self.title}:", "", *(f"| {' | '.join(line)} |" for line in lines)])


def _aligned(column: tuple[str, ...]) -> list[str]:
    width = max(map(len, column))
    flush_right = all(is_number(cell) for cell in column[1:])
    return [cell.rjust(width) if flush_right else cell.ljust(width) for cell in column]


def is_number(cell: str) -> bool:
    """True if a cell contains a number, or the sign of a missing number."""
    try:
        float(cell)
    except ValueError:
        return cell == "-"
    return True
