"""Results: arrays by name, as in MDAnalysis, that can be saved, tabulated and plotted."""

import csv
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from paceline.errors import UnsupportedError
from paceline.files import new_file


@dataclass(frozen=True)
class Table:
    """Columns of equal length, and which of them make a figure.

    Attributes
    ----------
    columns : mapping of str to numpy.ndarray, shape (n_rows,)
        By title, unit included.
    x : str
        The column along the abscissa.
    y : sequence of str
        The columns along the ordinate.
    y_label : str
        What they are.
    """

    columns: Mapping[str, np.ndarray]
    x: str
    y: tuple[str, ...]
    y_label: str


@dataclass
class _Hidden:
    table: Table | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)


class Results(dict[str, Any]):
    """Arrays by name, as items or as attributes.

    Examples
    --------
    >>> results = Results(rmsd=np.zeros((2, 3)))
    >>> results.rmsd is results["rmsd"]
    True
    """

    def __init__(
        self,
        *,
        table: Table | None = None,
        provenance: Mapping[str, Any] | None = None,
        **arrays: Any,
    ):
        super().__init__(arrays)
        self.__dict__["_hidden"] = _Hidden(table, provenance or {})

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"these results have no {name!r}; run the analysis first") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __reduce__(self) -> Any:
        return _restore, (dict(self), self._hidden.table, self._hidden.provenance)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Files, fingerprints, versions and parameters that these results come from."""
        return self._hidden.provenance

    @property
    def _table(self) -> Table:
        table = self._hidden.table
        if table is None:
            raise UnsupportedError(
                "these results make no table: the analysis was not run, or has several numbers "
                "an entry; save them as .npz"
            )
        return table

    def save(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write results with their provenance; whole under its name or not at all.

        Parameters
        ----------
        path : path-like
            Ending in .npz (all arrays), .csv or .tsv (the table; provenance in lines that begin
            with #).
        overwrite : bool
            Whether an existing file may be replaced.

        Raises
        ------
        FileExistsError
            The file exists and is not to be overwritten.
        UnsupportedError
            Another ending, or results that make no table.
        """
        kind = Path(path).suffix.lower()
        if kind == ".npz":
            provenance = np.array([f"{key}: {value}" for key, value in self.provenance.items()])
            with new_file(path, overwrite=overwrite, binary=True) as file:
                np.savez(file, **self, provenance=provenance)
        elif kind in (".csv", ".tsv"):
            # Asked for before the file is made, so that a refusal leaves none.
            self._table  # noqa: B018
            with new_file(path, overwrite=overwrite) as file:
                for key, value in self.provenance.items():
                    print(f"# {key}: {value}", file=file)
                self.write_table(file, delimiter="," if kind == ".csv" else "\t")
        else:
            raise UnsupportedError(
                f"{os.fspath(path)}: results are saved as .npz, .csv or .tsv, not as {kind!r}"
            )

    def write_table(self, file: TextIO, *, delimiter: str = ",") -> None:
        """Write the table to an open file, every digit of each number.

        Parameters
        ----------
        file : text file
        delimiter : str
            Between columns.
        """
        columns = self._table.columns
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))

    def to_dataframe(self) -> Any:
        """The table as a `pandas.DataFrame`.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        import pandas

        return pandas.DataFrame(dict(self._table.columns))

    def plot(self, ax: Any = None) -> Any:
        """Draw the table.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where; by default a new figure of `matplotlib.pyplot`.

        Returns
        -------
        matplotlib.axes.Axes
        """
        table = self._table
        if ax is None:
            from matplotlib import pyplot

            ax = pyplot.subplots(figsize=(7, 4), layout="constrained")[1]
        for title in table.y:
            ax.plot(table.columns[table.x], table.columns[title], lw=0.8, label=title)
        ax.set_xlabel(table.x)
        ax.set_ylabel(table.y_label)
        ax.margins(x=0)
        if len(table.y) > 1:
            ax.legend(frameon=False)
        return ax

    def save_figure(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Draw the table into a file of the format that its ending names.

        Raises
        ------
        FileExistsError
            The file exists and is not to be overwritten.
        UnsupportedError
            matplotlib has no such format.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4), layout="constrained")
        kind = Path(path).suffix.lstrip(".").lower()
        if kind not in figure.canvas.get_supported_filetypes():
            raise UnsupportedError(f"{os.fspath(path)}: no figure can be written as {kind!r}")
        self.plot(figure.subplots())
        with new_file(path, overwrite=overwrite, binary=True) as file:
            figure.savefig(file, format=kind, dpi=150)


def _restore(arrays: dict, table: Table | None, provenance: Mapping[str, Any]) -> Results:
    return Results(table=table, provenance=provenance, **arrays)
