"""Results of analyses: arrays by name, as in MDAnalysis, with methods to save and plot them."""

import csv
import io
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from paceline._util.files import new_file, new_files, temporary_name, writing_to
from paceline._util.json_types import JsonObject
from paceline.analysis import name_of_mdanalysis
from paceline.analysis.convergence_of_table_series import count_verdicts, verdicts_with_angles
from paceline.analysis.figures import ShownVerdicts, draw, new_figure
from paceline.analysis.results_in_sentences import answers
from paceline.analysis.saved_table_format import (
    FIGURE,
    FURTHER,
    DigestedText,
    describe,
    with_digest,
)
from paceline.analysis.table import Table, name_and_unit
from paceline.analysis.uncertainty import SeriesMean
from paceline.contract.analysis_declaration import ON_STRUCTURE
from paceline.contract.figure_options import FigureOptions
from paceline.contract.source import UNKNOWN_TIMES
from paceline.contract.system_interface import has_attribute
from paceline.errors import (
    NotRunError,
    UnsupportedError,
    name_of_imported,
    with_script_advice,
)
from paceline.performance.figure_style_and_elements import (
    FIGURE_STYLE,
    has_matplotlib,
    need_matplotlib,
    styled,
    write_figure,
)
from paceline.performance.number_format import shortened

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from matplotlib.axes import Axes
    from xarray import Dataset

    from paceline.analysis.values_on_structure import StructureValues
    from paceline.performance.html_elements import Html

#: Maximum number of means that a notebook shows. It shows at most half as many rows of the table.
SHOWN = 10
#: Number of table rows that are formatted at a time.
ROWS = 2**16


class Results(dict[str, Any]):
    """Arrays by name, as items or as attributes.

    Parameters
    ----------
    table : Table or callable, optional
        Table of the results, for saving and plotting; or a function that makes the table when it is
        first needed.
    provenance : mapping, optional
        Files, fingerprints, versions and parameters of the run.
    **arrays : numpy.ndarray
        Arrays of the results.

    Examples
    --------
    >>> results = Results(rmsd=np.zeros((2, 3)))
    >>> results.rmsd is results["rmsd"]
    True
    """

    def __init__(
        self,
        *,
        table: Table | Callable[[], Table] | None = None,
        provenance: Mapping[str, object] | None = None,
        **arrays: object,
    ):
        super().__init__(arrays)
        # Bypass `__setattr__`, which would store these attributes as results.
        self.__dict__.update(
            _table_or_none=table,
            _provenance=dict(provenance or {}),
            _series=("", ""),
            _on_structure=None,
        )

    #: Filename extensions of further files that `save` writes.
    FILES: tuple[str, ...] = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Class that `isinstance` also accepts: MDAnalysis's class, if MDAnalysis is imported."""
        return name_of_imported("MDAnalysis.analysis.results", "Results") or type(self)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            if not name.startswith("_"):  # Python itself looks up names that begin with "_"
                self._check_run()
            raise AttributeError(f"these results have no {name!r}") from None

    def __setattr__(self, name: str, value: object) -> None:
        self[name] = value

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        about = self.table, self._provenance, self._series, self._on_structure
        return _restore, (type(self), dict(self), *about)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        facts = self._provenance
        title = f"Results of {facts.get('analysis', 'an analysis')}" if facts else "Results"
        about = [f"{facts[key]}" for key in ("atoms", "frames analysed") if key in facts]
        first = "; ".join([title, *(one.partition(", indices")[0] for one in about)])
        arrays = [f"{name}: {kind_of(value)}" for name, value in self.items()]
        return "\n  ".join([f"<{first}>", *arrays, *self.summary()])

    @property
    def provenance(self) -> JsonObject:
        """Files, fingerprints, versions and parameters of the run."""
        return self._provenance

    @property
    def findings(self) -> dict[str, str]:
        """Descriptions of single values, such as a diffusion coefficient with its interval."""
        return dict(self.table.notes) if self.table else {}

    @property
    def has_table(self) -> bool:
        """True if the results can be saved as a table, and drawn."""
        return self._table_or_none is not None

    @property
    def means(self) -> dict[str, SeriesMean]:
        """Mean of each time series with its error, by the title of the column.

        Empty for results that are not time series, for periodic angles, and if frames are not in
        the order of time.
        """
        return self.table.means() if self.table else {}

    @property
    def table(self) -> Table | None:
        """Table of the results; None if they have no table."""
        found = self._table_or_none
        if callable(found):
            found = found()
        if found is not None and found.times_known and UNKNOWN_TIMES in self._provenance:
            found = found.without_times()
        self.__dict__["_table_or_none"] = found
        return found

    def summary(self) -> list[str]:
        """Describe the results in a few sentences, which the command line prints.

        Returns
        -------
        list of str
            Findings, such as a diffusion coefficient; otherwise means of time series with
            intervals; otherwise ranges of columns. At most three columns are described. Empty for
            results without a table.
        """
        return answers(self.table) if self.table else []

    def with_series(self, name: str, title: str) -> Self:
        """Set the title of an array with several values per frame, for `to_xarray`.

        Parameters
        ----------
        name : str
            Name of the array, which has one row per frame.
        title : str
            Title with unit, such as "distance (Å)".

        Returns
        -------
        Results
            These results.
        """
        self.__dict__["_series"] = name, title
        return self

    def with_values(self, values: "StructureValues | None") -> Self:
        """Attach values of atoms, which can be saved as B-factors of a structure and viewed.

        Parameters
        ----------
        values : StructureValues or None
            Values and structure; None if there are none.

        Returns
        -------
        Results
            These results.
        """
        self.__dict__["_on_structure"] = values
        return self

    def _values(self) -> "StructureValues":
        """Values on a structure; raise `UnsupportedError` if there are none."""
        self._check_run()
        found: StructureValues | None = self._on_structure
        if found is None:
            raise UnsupportedError(
                "these results have no values of atoms or residues to show on a structure"
            )
        return found

    def view(self) -> Any:
        """Show values of atoms or residues on the structure, coloured from blue to red.

        Returns
        -------
        py3Dmol.view or nglview.NGLWidget
            View for a notebook; of py3Dmol if it is installed.

        Raises
        ------
        UnsupportedError
            Neither package is installed, or the results have no values of atoms or residues.
        """
        return self._values().view(self.provenance)

    def _check_run(self) -> None:
        """Raise `NotRunError` if there are no results yet."""
        if not (self or self._provenance or self._table_or_none):
            raise NotRunError("there are no results yet: call run() first")

    def whole_table(self) -> Table:
        """Return the table; raise `UnsupportedError` if there is none."""
        self._check_run()
        table = self.table
        if table is None:
            named = "timeseries" in self and np.ndim(self["timeseries"]) == 2
            names = "; label=[…] names the values of a frame, and makes a table" * named
            error = UnsupportedError(
                "these results have no table, as arrays of several dimensions: save them as "
                f".npz{names}"
            )
            arrays = "use to_xarray()" if self._series[0] else "use the arrays"
            raise with_script_advice(error, f"; {arrays}")
        return table

    def to_xarray(self) -> "Dataset":
        """Convert the table, or arrays with one row per frame, to an xarray Dataset.

        Returns
        -------
        xarray.Dataset
            One variable for each column of the table, with the x column of the figure as
            coordinate, and units as attributes. `attrs` contains files, versions and parameters.
            Arrays with several values per frame have further dimensions, `axis_1`, `axis_2` and so
            on. Rows on a grid, such as pairs of residues, become variables with two dimensions,
            with NaN for missing rows. If two columns differ only in their unit, the name of the
            second contains its unit. netCDF allows neither "/" in names nor float16, so "_" and
            float32 replace them.

        Raises
        ------
        ImportError
            xarray is not installed.
        UnsupportedError
            The results have neither a table nor arrays with one row per frame.
        """
        from xarray import Dataset

        columns: dict[str, np.ndarray]
        series, title = self._series
        if series and self._table_or_none is None:
            columns = {"frame": self["frames"], "time (ps)": self["times"], title: self[series]}
            keys: Sequence[str] = ["time (ps)"]
        else:
            table = self.whole_table()
            columns, keys = dict(table.columns), table.keys
            places = {*zip(*(columns[key] for key in keys), strict=True)}
            # If keys repeat, such as residue numbers in several chains, use only the x column.
            if not keys or len(places) < len(columns[table.x]):
                keys = [table.x]
        names = _without_slashes(_names_and_units(columns))
        dimensions = [names[key][0] for key in keys]
        rows = dimensions[0] if len(keys) == 1 else "rows"
        variables = {}
        for title, values in columns.items():
            name, unit = names[title]
            if np.asarray(values).dtype == np.float16:
                values = np.asarray(values, np.float32)
            axes = (rows, *(f"axis_{k}" for k in range(1, np.ndim(values))))
            variables[name] = (axes, values, {"units": unit} if unit else {})
        attributes = {key: str(value) for key, value in self.provenance.items()}
        dataset = Dataset(variables, attrs=attributes).set_coords(dimensions)
        if len(keys) > 1:
            dataset = dataset.set_index(rows=dimensions).unstack(rows)
            for name in dimensions:
                dataset[name].attrs = variables[name][2]
        return dataset

    def to_arrow(self) -> "pyarrow.Table":
        """Convert the table to an Apache Arrow table, for example for `polars.from_arrow`.

        Returns
        -------
        pyarrow.Table
            One column for each column of the table, named without unit, unless another column has
            this name. The metadata of its field contain `unit`, and `label` if figures have a
            legend. The metadata of the schema contain files, versions and parameters.

        Raises
        ------
        ImportError
            pyarrow is not installed.
        UnsupportedError
            The results have no table, or Arrow lacks a type for a column, such as complex numbers.
        """
        import pyarrow

        table = self.whole_table()
        arrays, fields, names = [], [], _names_and_units(table.columns)
        for title, values in table.columns.items():
            name, unit = names[title]
            notes = {"unit": unit, "label": table.y.get(title, "")}
            values = np.asarray(values)
            try:
                native = values.astype(values.dtype.newbyteorder("="), copy=False)
                arrays.append(pyarrow.array(native))
            except pyarrow.ArrowNotImplementedError as error:
                kind = values.dtype
                refused = UnsupportedError(f"column {title!r}: Arrow has no type for {kind}")
                raise with_script_advice(refused, "; use to_dataframe()") from error
            given = {key: note for key, note in notes.items() if note}
            fields.append(pyarrow.field(name, arrays[-1].type, metadata=given or None))
        origin = {key: str(value) for key, value in self.provenance.items()}
        return pyarrow.table(arrays, schema=pyarrow.schema(fields, metadata=origin))

    def save(self, path: str | os.PathLike, *, overwrite: bool = False) -> None:
        """Write results with their provenance; the file appears complete or not at all.

        Parameters
        ----------
        path : path-like
            The filename extension determines the content. `.npz`: all arrays; nested arrays have
            names such as "x.dim". `.csv` or `.tsv`: the table, after lines with the provenance that
            begin with #. `.xvg`: the columns of the figure, for Grace and users of GROMACS. Values
            of atoms or residues can be written as B-factors to a `.pdb` file. They can also be
            written to a script that colours atoms (`.pml` for PyMOL, `.cxc` for ChimeraX, `.tcl`
            for VMD), together with a PDB file.
        overwrite : bool
            Replace an existing file.

        Raises
        ------
        FileExistsError
            The file exists, and `overwrite` is False.
        NotRunError
            There are no results yet.
        UnsupportedError
            The extension is unknown, or the results have no table.
        """
        is_shown = self._on_structure is not None
        check_ending(path, (*self.FILES, *(ON_STRUCTURE if is_shown else ())))
        self._check_run()
        if is_shown and _ending(path) in ON_STRUCTURE:
            self._values().save(path, self.provenance, overwrite=overwrite)
            return
        if _ending(path) in self.FILES:
            name = temporary_name(path)
            name = name.with_name(name.name + _ending(path))  # the extension selects the writer
            with new_files([path], overwrite=overwrite, names=[name]), writing_to(path):
                self.write_file(os.fspath(name), os.fspath(path))
            return
        if _ending(path) != ".npz":
            _ = self.whole_table()  # raise an error before the file is created
        if _ending(path) == ".npz":
            arrays = {name: np.asanyarray(one) for name, one in _flat(self).items()}
            facts = with_digest(self._facts(arrays), arrays)
            with new_file(path, overwrite=overwrite, binary=True) as file:
                np.savez(file, **arrays, provenance=np.array(facts, dtype=str))  # type: ignore[arg-type]
            return
        columns, more = self.whole_table().columns, {}
        if _ending(path) == ".xvg":
            more = {"titles": self._xvg_titles()}
            columns = {title: columns[title] for title in more["titles"]}
        with new_file(path, overwrite=overwrite) as named, DigestedText(named) as file:
            file.writelines(f"# {line}\n" for line in self._facts(columns, **more))
            if _ending(path) == ".xvg":
                self._write_xvg(file)
            else:
                self.write_table(file, delimiter="," if _ending(path) == ".csv" else "\t")

    def _facts(self, arrays: Mapping[str, np.ndarray], **more: object) -> list[str]:
        """Return the lines of facts in a file: on the run, the figure, means, and the sampling.

        `arrays` are the arrays in the file, to which the line about the figure refers. `more` is
        added to this line.
        """
        results = {**self.findings, **{f"mean of {key}": mean for key, mean in self.means.items()}}
        verdicts = verdicts_with_angles(self.table) if self.table else {}
        results |= {f"sampling of {key}": one for key, one in verdicts.items()}
        if self.table and not verdicts and (counts := count_verdicts(self.table)):
            results["sampling"] = counts
        figure = self._figure_line(arrays, **more)
        # A selection may contain line breaks, but each fact must be one line.
        about, found = (
            [" ".join(f"{key}: {value}".split()) for key, value in facts.items()]
            for facts in (self.provenance, results)
        )
        # The record of the run already contains some findings.
        return [*about, *figure, *(line for line in found if line not in about)]

    def write_file(self, path: str, name: str) -> None:
        """Write a file with one of the extensions in `FILES`.

        Parameters
        ----------
        path : str
            Path of the file, which has been checked.
        name : str
            Final name of the file, for messages.
        """
        raise NotImplementedError(path)

    def _figure_line(self, arrays: Mapping[str, np.ndarray], **more: object) -> list[str]:
        """Return a line that describes the figure, with references to arrays in the file."""
        found = None if self.table is None else describe(self.table, arrays)
        if found is None and not more:
            return []
        return [
            f"{FIGURE}: {json.dumps({**(found or {}), **more}, ensure_ascii=False, default=float)}"
        ]

    def _xvg_titles(self) -> list[str]:
        """Return the titles of the columns that are written to a file for Grace."""
        table = self.whole_table()
        axes = table.keys if len(table.keys) > 1 else [table.abscissa]
        return [*axes, *table.y]

    def write_table(self, file: IO[str] | io.TextIOBase, *, delimiter: str = ",") -> None:
        """Write the table to an open file, with all digits of each number.

        Parameters
        ----------
        file : text file
            File, which stays open.
        delimiter : str
            Character between columns.
        """
        table = self.whole_table()
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(table.columns)
        n_rows = max(map(len, table.columns.values()))
        for first in range(0, n_rows, ROWS):
            rows = slice(first, first + ROWS)
            cells = (table.cells(title, rows) for title in table.columns)
            writer.writerows(zip(*cells, strict=True))

    def _write_xvg(self, file: io.TextIOBase) -> None:
        """Write the columns of the figure for Grace, with all digits of each number.

        Rows of a map are x, y and value; Grace draws them as points with numbers next to them.
        """
        table = self.whole_table()
        is_map = len(table.keys) > 1
        axes = [*table.keys] if is_map else [table.abscissa, table.y_label]
        legends = [table.y_label] if is_map else [*table.y.values()]
        titles = self._xvg_titles()
        file.write(f'@    title "{_in_quotes(table.title)}"\n')
        file.write(f'@    xaxis  label "{_in_quotes(axes[0])}"\n')
        file.write(
            f'@    yaxis  label "{_in_quotes(axes[1])}"\n@TYPE {"xyz" if is_map else "xy"}\n'
        )
        for k, legend in enumerate(legends):
            file.write(f'@ s{k} legend "{_in_quotes(legend)}"\n')
        for first in range(0, len(table.columns[titles[0]]), ROWS):
            cells = (table.cells(title, slice(first, first + ROWS)) for title in titles)
            file.writelines(" ".join(map(str, row)) + "\n" for row in zip(*cells, strict=True))

    def to_dataframe(self) -> "pandas.DataFrame":
        """Convert the table to a `pandas.DataFrame`.

        Returns
        -------
        pandas.DataFrame
            One row per frame or atom; columns as in a saved table.

        Raises
        ------
        ImportError
            pandas is not installed.
        """
        import pandas

        return pandas.DataFrame(dict(self.whole_table().columns))

    def plot(self, ax: "Axes | None" = None, **options: Any) -> "Axes":
        """Draw the figure of the table.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; by default new axes in a new figure of `matplotlib.pyplot`.
        **options
            Options of `paceline.analysis.figures.FigureOptions`: `label`, `title`, `figsize`,
            `time_unit`, `xlim`, `ylim`, `stats`, `style`. Size and style only apply to a new
            figure.

        Returns
        -------
        matplotlib.axes.Axes
            Axes with labels and units.

        Raises
        ------
        UnsupportedError
            matplotlib is not installed.
        ValueError
            An option is invalid.
        """
        chosen = FigureOptions(**options)
        if ax is not None:
            return draw(self.whole_table(), ax, chosen)
        need_matplotlib()
        from matplotlib import pyplot

        with styled(FIGURE_STYLE, chosen.style):
            figure = new_figure(pyplot.figure, chosen)
            return draw(self.whole_table(), figure.subplots(), chosen)

    def _repr_html_(self) -> str:
        """HTML for notebooks: table and figure, or names and shapes if there is no table."""
        from paceline.performance.html_elements import html_table, notebook_page

        table = self.table
        rows: list[tuple[str, ...]]
        if table is None:
            rows = [(name, kind_of(value)) for name, value in self.items()]
            return notebook_page("Results", html_table(("name", "value"), rows))
        n_rows = max(map(len, table.columns.values()))
        shown = range(min(n_rows, SHOWN // 2))
        cells = (table.cells(title, slice(len(shown))) for title in table.columns)
        rows = [tuple(map(shown_cell, row)) for row in zip(*cells, strict=True)]
        caption = f"The first {len(shown)} of {n_rows:,} rows." if n_rows > len(shown) else ""
        means = [(title, f"{mean}") for title, mean in self.means.items()][:SHOWN]
        findings = [*self.findings.items()]
        return notebook_page(
            "Results",
            *([_notebook_figure(table)] if has_matplotlib() else []),
            *([html_table(("number", "value"), findings)] if findings else []),
            *([html_table(("series", "mean"), means)] if means else []),
            html_table(tuple(table.columns), rows, about=caption),
        )

    def options_of(self, options: FigureOptions) -> dict[str, Any]:
        """Return the options that apply to the figure of this table, by name."""
        table = self.whole_table()
        abscissa = (table.drawn or table).abscissa
        return vars(options.for_abscissa(name_and_unit(abscissa)[1]))

    def save_figure(
        self, path: str | os.PathLike, *, overwrite: bool = False, **options: Any
    ) -> None:
        """Draw the figure of the table into a file; the filename extension determines the format.

        Parameters
        ----------
        path : path-like
            File with extension .pdf, .png, .svg or another format of matplotlib.
        overwrite : bool
            Replace an existing file.
        **options
            Options of `plot`.

        Raises
        ------
        FileExistsError
            The file exists, and `overwrite` is False.
        UnsupportedError
            matplotlib does not support the format, or is not installed.
        ValueError
            An option is invalid.
        """
        self._check_run()
        save_figure(self.whole_table(), path, FigureOptions(**options), overwrite=overwrite)


def save_figure(
    tables: Table | Sequence[Table],
    path: str | os.PathLike,
    options: FigureOptions,
    *,
    overwrite: bool = False,
    verdicts: ShownVerdicts | None = None,
) -> None:
    """Draw one table, or several tables into one figure, and save the figure to a file."""
    check_figure_ending(path)
    from matplotlib.figure import Figure

    with styled(FIGURE_STYLE, options.style):
        figure = new_figure(Figure, options)
        draw(tables, figure.subplots(), options, verdicts)
        with new_file(path, overwrite=overwrite, binary=True) as file:
            write_figure(figure, file, _ending(path)[1:])


def _notebook_figure(table: Table) -> "Html":
    """Draw a table for a notebook, as HTML."""
    from matplotlib.figure import Figure

    from paceline.performance.html_elements import notebook_image

    with styled(FIGURE_STYLE):
        figure = Figure()
        draw(table, figure.subplots())
        return notebook_image(figure, table.title)


def _flat(values: Mapping[str, Any], group: str = "") -> dict[str, np.ndarray]:
    """Flatten nested results to arrays with names such as `x.mass_density`.

    Universes and groups of atoms are left out.

    For a grid, the edges are included. Arrays in a list are numbered, such as `rdf.0`, unless they
    have equal shapes.
    """
    found: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if has_attribute(value, "atoms"):
            continue
        if has_attribute(value, "grid"):
            edges = zip("xyz", value.edges, strict=True)
            found |= _flat({f"{name}.edges_{axis}": one for axis, one in edges}, group)
            value = value.grid
        if isinstance(value, list | tuple) and not _is_one_array(value):
            value = {str(k): one for k, one in enumerate(value)}
        inner = isinstance(value, Mapping)
        found |= _flat(value, f"{group}{name}.") if inner else {f"{group}{name}": value}
    return found


def _is_one_array(values: Sequence[object]) -> bool:
    """True if arrays have equal shapes, so that NumPy can join them to one array."""
    try:
        np.asarray(values)
    except ValueError:
        return False
    return True


def _in_quotes(text: str) -> str:
    """Convert a text to one line without quotes, for a label of Grace."""
    return " ".join(str(text).replace('"', "'").split())


def shown_cell(value: object) -> str:
    """Format a number of a table for a notebook or a terminal."""
    if isinstance(value, float | np.floating):
        return f"{value:.5g}"
    return shortened(value) if isinstance(value, str) else f"{value}"


def further_results(analysis: Any) -> dict[str, Results]:
    """Return the further tables of an analysis after a run, as `Results`, by name.

    They have the provenance of the analysis.
    """
    tables = analysis.further_tables().items()
    return {
        name: Results(table=table, provenance={**analysis.results.provenance, FURTHER: name})
        for name, table in tables
    }


def kind_of(value: object) -> str:
    """Describe a result that is not a column, for example an array by its shape."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    if isinstance(value, Mapping):
        return f"results {', '.join(map(str, value))}"
    if isinstance(value, list | tuple) and any(isinstance(one, np.ndarray) for one in value):
        return f"{type(value).__name__} of {len(value)} arrays"
    return shortened(repr(value), 80)


def _names_and_units(titles: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return name and unit for each title of a column.

    If two names were equal, the name of the second is its whole title.
    """
    found: dict[str, tuple[str, str]] = {}
    taken = set(titles)
    for title in titles:
        name, unit = name_and_unit(title)
        found[title] = title if unit and name in taken else name, unit
        taken.add(name)
    return found


def _without_slashes(names: Mapping[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Replace "/" by "_" in names, unless another column has the new name."""
    taken, found = {name for name, _ in names.values()}, {}
    for title, (name, unit) in names.items():
        plain = name.replace("/", "_")
        while plain != name and plain in taken:
            plain += "_"
        taken.add(plain)
        found[title] = plain, unit
    return found


def check_ending(path: str | os.PathLike, more: Sequence[str] = ()) -> None:
    """Raise `UnsupportedError` if results cannot be saved with this filename extension."""
    known = (".npz", ".csv", ".tsv", ".xvg")
    if _ending(path) not in (*known, *more):
        *others, last = *known, *more
        raise UnsupportedError(
            f"{os.fspath(path)}: results are saved as {', '.join(others)} or {last}, "
            f"not {_ending(path)!r}"
        )


def check_figure_ending(
    path: str | os.PathLike,
    tables: Sequence[str] = (),
    *,
    style: str | os.PathLike | None = None,
) -> None:
    """Raise `UnsupportedError` if matplotlib is missing, or lacks the format or the style.

    `tables` are filename extensions of tables, which are also allowed for the file.
    """
    need_matplotlib()
    if style is not None:
        with styled({}, style):
            pass
    from matplotlib.backend_bases import FigureCanvasBase

    if _ending(path)[1:] not in FigureCanvasBase.get_supported_filetypes():
        tables_too = f"tables are saved as {' or '.join(tables)}, " if tables else ""
        raise UnsupportedError(
            f"{os.fspath(path)}: {tables_too}figures are saved as .pdf, .png or .svg, not "
            f"{_ending(path)!r}"
        )


def _ending(path: str | os.PathLike) -> str:
    return Path(path).suffix.lower()


def _restore(
    kind: type[Results],
    arrays: dict,
    table: Table | None,
    provenance: Mapping[str, object],
    series: tuple[str, str],
    on_structure: Any = None,
) -> Results:
    made = kind(table=table, provenance=provenance, **arrays).with_series(*series)
    return made.with_values(on_structure)


def __getattr__(name: str) -> object:
    return name_of_mdanalysis(__name__, name)
