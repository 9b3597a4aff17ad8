"""A report in a file, of the form that its ending names."""

import os
from pathlib import Path

from paceline.errors import UnsupportedError
from paceline.files import new_file, refuse_impossible
from paceline.report.drawing import STYLE
from paceline.report.figures import figure_of
from paceline.report.page import page_of
from paceline.timing import Timings

#: A page, and figures alone.
PAGE, FIGURES = ".html", (".png", ".svg")


def save_report(timings: Timings, path: str | os.PathLike, *, overwrite: bool = False) -> None:
    """Write a report; whole under its name or not at all.

    Parameters
    ----------
    timings : Timings
        Of the run.
    path : path-like
        Ending in .html (a page that needs nothing else), .png or .svg (its figures as one).
    overwrite : bool
        Whether an existing file may be replaced.

    Raises
    ------
    FileExistsError
        `path` exists and is not to be overwritten.
    UnsupportedError
        Another ending.
    """
    from matplotlib import rc_context

    refuse_unknown_report(path)
    refuse_impossible(path, overwrite=overwrite)
    if _ending(path) == PAGE:
        page = page_of(timings)
        with new_file(path, overwrite=overwrite) as file:
            file.write(page)
        return
    figure = figure_of(timings)
    with rc_context(STYLE), new_file(path, overwrite=overwrite, binary=True) as file:
        figure.savefig(file, format=_ending(path)[1:])


def refuse_unknown_report(path: str | os.PathLike, others: str = "") -> None:
    """Raise `UnsupportedError` for a name by which reports are not saved.

    Parameters
    ----------
    path : path-like
        Name of a file to be.
    others : str
        What else may be saved where it was asked for, and how.
    """
    if _ending(path) not in (PAGE, *FIGURES):
        raise UnsupportedError(
            f"{os.fspath(path)}: reports are saved as .html, or as figures in .png or .svg"
            f"{others and f', {others}'}, not {_ending(path)!r}"
        )


def _ending(path: str | os.PathLike) -> str:
    return Path(path).suffix.lower()
