"""Free-energy surfaces of two time series."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paceline._util.arguments import whole_number
from paceline._util.machine_and_software import software
from paceline.analysis.jackknife_intervals import (
    N_PARTS,
    Added,
    FunctionErrors,
    errors_of_function,
)
from paceline.analysis.results import Results
from paceline.analysis.saved_table_format import OF_FRAMES, STEP, read_saved, title_like
from paceline.analysis.table import Image, Table, matching_rows, name_and_unit, title_of_band
from paceline.analysis.uncertainty import digits, mean_of_series
from paceline.contract.source import UNKNOWN_TIMES
from paceline.errors import UnsupportedError, warn

#: Boltzmann's constant per mol (CODATA 2018, exact), kJ/(mol K).
BOLTZMANN = 8.31446261815324e-3


def free_energy_surface(
    x: Sequence[float] | np.ndarray,
    y: Sequence[float] | np.ndarray,
    *,
    temperature: float = 300.0,
    bins: int | Sequence[int] = 50,
    range: Sequence[Sequence[float]] | None = None,
    labels: Sequence[str] = ("x", "y"),
    errors: bool = False,
) -> Results:
    r"""Estimate the free energy along two time series from the joint histogram of their values.

    $$F(x, y) = -k_B T \ln \frac{p(x, y)}{p_\mathrm{max}}$$

    where p is the fraction of the frames in a bin. F is 0 in the bin with the most frames. F
    belongs to the ensemble that the trajectory samples, and is not reweighted. It is valid only if
    sampling is complete. If a series may have fewer than 10 independent values, results and figure
    state that it is not converged. With n frames in the fullest bin, F
    is at most $k_B T \ln n$.

    Parameters
    ----------
    x, y : array of float, shape (n_frames,)
        Time series in the order of time. Frames with NaN in one of them are left out.
    temperature : float
        Temperature of the simulation, K.
    bins : int or (int, int)
        Number of bins for both series, or for each of them.
    range : ((float, float), (float, float)), optional
        Limits of the bins along x and y; by default the minimum and the maximum.
    labels : (str, str)
        Labels of the axes, with units.
    errors : bool
        Also compute 95 % intervals, from parts of the series
        (`paceline.analysis.jackknife_intervals`).

    Returns
    -------
    Results
        `free_energy`, ndarray of float64, shape (n_x, n_y), kJ/mol, NaN in bins without frames;
        `counts`, int64, number of frames in each bin; `x_edges` and `y_edges`, limits of the bins;
        `temperature`, K. With `errors` also `free_energy_interval`, float64, shape (n_x, n_y): half
        the widths of 95 % intervals of the differences from the fullest bin, kJ/mol; NaN in that
        bin, and in bins whose frames are all in one part of the series. The results can be saved
        and drawn like those of an analysis.

    Raises
    ------
    ValueError
        The series differ in length or have no frame in the range, or parameters are invalid.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x, y = rng.normal(size=(2, 100_000))
    >>> surface = free_energy_surface(x, y, bins=40, range=((-4, 4), (-4, 4)))
    >>> surface.free_energy.shape, float(np.nanmin(surface.free_energy))
    ((40, 40), 0.0)
    """
    both = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if both[0].ndim != 1 or both[0].shape != both[1].shape:
        raise ValueError(
            "x and y must be series of equal length, not arrays of shapes "
            f"{both[0].shape} and {both[1].shape}"
        )
    if not 0 < temperature < np.inf:
        raise ValueError(f"temperature must be above 0 K, not {temperature!r}")
    n_bins = [whole_number("bins", one, 1) for one in np.broadcast_to(bins, 2).tolist()]
    limits = None if range is None else np.asarray(range, dtype=np.float64)
    if limits is not None and (
        limits.shape != (2, 2) or not np.isfinite(limits).all() or (np.diff(limits) <= 0).any()
    ):
        raise ValueError(f"range must be two pairs of increasing finite numbers, not {range!r}")
    known = np.isfinite(both[0]) & np.isfinite(both[1])
    if not known.any():
        raise ValueError("in no frame do both series have a value")
    counts, *edges = np.histogram2d(both[0][known], both[1][known], n_bins, limits)
    if not counts.any():
        raise ValueError(f"no frame is within the range {range!r}")
    with np.errstate(divide="ignore"):
        energy = -BOLTZMANN * temperature * np.log(counts / counts.max())
    energy[counts == 0] = np.nan
    energy = np.abs(energy)  # avoid -0
    if labels[0] == labels[1]:
        labels = [_add_to_name(label, f", {k}") for k, label in enumerate(labels, 1)]
    note = _remark(both, labels)
    found = None
    if errors:
        found = _errors(both[0][known], both[1][known], edges, temperature)
        note += "\n" + _interval_note(found.interval)
    label = f"free energy at {temperature:g} K (kJ/mol)"
    image = Image(energy, edges[0], edges[1], labels[0], labels[1], label, note=note)
    facts = {
        **software(),
        "analysis": "free-energy surface",
        "temperature (K)": temperature,
        "axes": "; ".join(labels),
        "bins": f"{n_bins[0]} x {n_bins[1]}",
        "frames": f"{int(counts.sum())} of {len(known)}",
        "convergence": note,
        **({} if found is None else {"intervals": found.method}),
    }
    intervals = {} if found is None else {"free_energy_interval": found.interval}
    return Results(
        table=_table(energy, counts, edges, labels, image, *intervals.values()),
        provenance=facts,
        free_energy=energy,
        counts=counts.astype(np.int64),
        x_edges=edges[0],
        y_edges=edges[1],
        temperature=float(temperature),
        **intervals,
    )


def _errors(
    x: np.ndarray, y: np.ndarray, edges: Sequence[np.ndarray], temperature: float
) -> FunctionErrors:
    """Compute the intervals of the free energy from parts of the series."""
    parts = [
        (len(rows), np.histogram2d(x[rows], y[rows], list(edges))[0])
        for rows in np.array_split(np.arange(len(x)), min(N_PARTS, len(x)))
    ]
    fullest = np.unravel_index(sum(counts for _, counts in parts).argmax(), parts[0][1].shape)

    def energy(counts: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return -BOLTZMANN * temperature * np.log(counts / counts[fullest])

    return errors_of_function(Added(), parts, energy)


def _interval_note(interval: np.ndarray) -> str:
    """Describe the intervals of all bins by their median, in one line."""
    known = interval[~np.isnan(interval)]
    if not len(known):
        return "no 95 % intervals: too few frames"
    return f"95 % interval of a bin: ± {digits(np.median(known), 2)} kJ/mol (median)"


def _add_to_name(title: str, end: str) -> str:
    """Append words to the name in a title, before its unit."""
    name, unit = name_and_unit(title)
    return f"{name}{end} ({unit})" if unit else f"{name}{end}"


def _remark(series: Sequence[np.ndarray], labels: Sequence[str]) -> str:
    """Describe which of the two series are not converged, or that both are."""
    means = [mean_of_series(one) for one in series]
    open_ones = [
        f"{label.partition(' (')[0]} {mean.n_independent:.2g} of {mean.n_values}"
        for label, mean in zip(labels, means, strict=True)
        if not mean.converged
    ]
    found = ", ".join(open_ones)
    return f"not converged, independent values:\n{found}" if found else "both series are converged"


def _table(
    energy: np.ndarray,
    counts: np.ndarray,
    edges: Sequence[np.ndarray],
    labels: Sequence[str],
    image: Image,
    interval: np.ndarray | None = None,
) -> Table:
    """Make a table with one row per bin, at its center."""
    middles = np.meshgrid(*((one[1:] + one[:-1]) / 2 for one in edges), indexing="ij")
    columns: dict[str, np.ndarray] = dict(zip(labels, map(np.ravel, middles), strict=True))
    title = "free energy (kJ/mol)"
    columns[title] = energy.ravel()
    if interval is not None:
        columns[title_of_band(title)] = interval.ravel()
    columns["frames"] = counts.ravel().astype(np.int64)
    return Table(columns, labels[0], {title: "free energy"}, title, image=image, keys=labels)


def series_of_tables(
    paths: Sequence[str | os.PathLike], x: str | None = None, y: str | None = None
) -> list[tuple[str, np.ndarray]]:
    """Find two series in saved tables, at the frames that both tables contain.

    If a table has no frame numbers, as for energies, rows with equal times are joined.

    Parameters
    ----------
    paths : sequence of path-like
        One or two tables, as `Results.save` writes them: .csv, .tsv, .npz, or .xvg.
    x, y : str, optional
        Titles of the series, or beginnings of titles, in the first and in the last table. By
        default the first series of each; for a single table the first and the second series.

    Returns
    -------
    list of (str, numpy.ndarray)
        Titles and values of both series.

    Raises
    ------
    UnsupportedError
        A series does not exist, or tables have no common frames or times.
    """
    ends = [Path(paths[0]), Path(paths[-1])]
    tables = [_joinable(path) for path in ends]
    alone = len(paths) == 1
    titles = [
        _title(columns, path, wanted, number)
        for columns, path, wanted, number in zip(tables, ends, (x, y), (0, int(alone)), strict=True)
    ]
    values = [columns[title] for columns, title in zip(tables, titles, strict=True)]
    if not alone:
        rows = _common_rows(ends, tables)
        values = [one[row] for one, row in zip(values, rows, strict=True)]
    if titles[0] == titles[1] and not alone:
        titles = [_add_to_name(titles[0], f" of {name}") for name in _distinct_names(ends)]
    return list(zip(titles, values, strict=True))


def _distinct_names(paths: Sequence[Path]) -> list[str]:
    """Names of two files without extension; if they are equal, folders are added."""
    first, second = paths
    if first.stem != second.stem:
        return [first.stem, second.stem]
    return [f"{one.with_suffix('')}" for one in paths] if first != second else ["x", "y"]


def _common_rows(
    paths: Sequence[Path], tables: Sequence[dict[str, np.ndarray]]
) -> list[np.ndarray]:
    """Rows of two tables with equal frames, or, without frames, with equal times."""
    keys = [key for key in OF_FRAMES if all(key in columns for columns in tables)]
    if not keys:
        raise UnsupportedError(
            f"{paths[0]} or {paths[1]} has no frame numbers or times to compare with the other"
        )
    key = keys[0]
    things = "frames" if key == OF_FRAMES[0] else "times"
    first, second = (columns[key] for columns in tables)
    rows = matching_rows(first, second)
    if rows is None or len(rows[0]) == 0:
        raise UnsupportedError(f"{paths[0]} and {paths[1]} do not have the same {things}, once")
    if len(rows[0]) < max(len(first), len(second)):
        warn(f"only {len(rows[0])} {things} are in both tables, of {len(first)} and {len(second)}")
    return [*rows]


def _joinable(path: Path) -> dict[str, np.ndarray]:
    """Read the columns of a table; drop times if they are unknown."""
    saved = read_saved(path)
    columns = saved.columns
    if UNKNOWN_TIMES in saved.facts:
        columns.pop("time (ps)", None)
    return columns


def _title(columns: dict[str, np.ndarray], path: Path, wanted: str | None, number: int) -> str:
    """Find a series by the beginning of its title, or by its number."""
    if wanted is not None:
        return title_like(columns, path, wanted)
    titles = [title for title in columns if title not in (*OF_FRAMES, STEP)]
    if len(titles) <= number:
        raise UnsupportedError(f"{path} has only one series, {', '.join(titles)}: add a table")
    return titles[number]
