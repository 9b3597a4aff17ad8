"""Updating groups: atoms that are selected in each frame, residence times and survival."""

import itertools
from collections.abc import Sequence

import numpy as np

from paceline._util.arguments import one_of, whole_number
from paceline._util.sorted_unique import sorted_unique
from paceline.analysis.base import AnalysisBase, check_times, table_in_time, table_of_records
from paceline.analysis.lag_time_confidence_intervals import (
    BlockSums,
    block_starts,
    is_converged,
    jackknife_interval,
    time_with_interval,
)
from paceline.analysis.results import Results
from paceline.analysis.table import (
    MOST_MARKED,
    States,
    Table,
    name_and_unit,
    part_labels,
    residue_labels,
    with_gaps,
)
from paceline.analysis.updating_groups import GroupFinder, describe_group, follow
from paceline.block import Block
from paceline.contract.analysis_declaration import CORRELATION, LAGS, Declaration
from paceline.contract.analysis_kinds import Ragged
from paceline.contract.run_info_and_descriptions import describe_frames
from paceline.contract.system_interface import Residues, UpdatingAtoms, attribute_of
from paceline.errors import UnsupportedError, warn
from paceline.performance.number_format import many

#: Stay of an atom or residue in a group: its index, first and last row of the stay, and `is_whole`,
#: False if the run may begin or end within the stay.
STAY = np.dtype([("index", np.int64), ("first", np.int64), ("last", np.int64), ("is_whole", bool)])

#: Kinds of time correlation functions of the presence in a group.
FUNCTIONS = ("intermittent", "continuous")
#: Counting this number of pairs of times, in units of n log2(n), takes as long as a Fourier
#: transform of n points.
PAIRS_AS_TRANSFORM = 0.1
#: Approximate number of points in the Fourier transforms that are computed at a time.
TRANSFORMED = 2**18
#: Colour of frames in which an atom or bond is present.
PRESENT = "#1f4e79"


class SelectedAtoms(AnalysisBase):
    """Atoms of an updating group in each frame, such as water in the first solvation shell.

    Workers evaluate the selection without MDAnalysis: `around`, `sphzone`, `sphlayer`, `isolayer`,
    `cyzone`, `cylayer`, `point`, `prop`, `same … as`, `byres`, `global`, `group`, `and`, `or` and
    `not`, of any group and with any `periodic=`. All other keywords do not depend on positions, and
    MDAnalysis evaluates them once. In each frame, the atoms and their order are the same as in
    MDAnalysis.

    Parameters
    ----------
    group : UpdatingAtomGroup
        Group from `select_atoms(…, updating=True)`, called for a fixed or an updating group.

    Attributes
    ----------
    results.atoms : numpy.ndarray of int64, shape (n_selected,)
        Indices of the selected atoms of all frames, in the order of frames. An array of more than
        1 GiB is in a temporary file.
    results.counts : numpy.ndarray of int64, shape (n_frames,)
        Number of atoms in each frame. If damaged frames were left out, the dtype is float64, and
        the number is NaN for these frames, which have no atoms.
    results.offsets : numpy.ndarray of int64, shape (n_frames + 1,)
        Atoms of frame `k` of the run are `atoms[offsets[k]:offsets[k + 1]]`.

    Raises
    ------
    UnsupportedError
        Workers cannot evaluate the group: it uses a user's own keyword, `bonded` or `smarts` of
        atoms that change, or a base group that contains an atom twice.
    TypeError
        The group is not an UpdatingAtomGroup.
    ValueError
        A distance is negative or not finite. In the run, as `AnalysisError`: a position is not
        finite, or a cell is invalid or smaller than the distance.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> near = u.select_atoms("name CA and around 8 resid 30", updating=True)
    >>> shell = SelectedAtoms(near).run(stop=3)
    >>> shell.results.counts
    array([17, 16, 15])
    >>> u.atoms[shell.results.atoms[:shell.results.offsets[1]]].resids[:3]
    array([14, 27, 28])
    """

    declaration = Declaration(
        name="selection",
        summary="number of atoms in an updating selection, and as .npz the atoms themselves",
        description=(
            "Number of atoms that a selection finds in each frame, such as water in the first "
            "solvation shell. A .npz file also contains their indices (atoms); those of frame k "
            "are from offsets[k] to offsets[k + 1]."
        ),
        section="changing-groups.md#atoms-of-each-frame",
        examples=(
            'md.tpr md.xtc --select "name OW and around 3.5 protein" -o shell.csv --plot shell.png',
            'md.tpr md.xtc --select "name OW and cyzone 4 12 -12 protein" --correlation pore.csv',
        ),
        options=(LAGS,),
        further={"correlation": CORRELATION.format("atoms")},
        updating=True,
    )

    def __init__(self, group: UpdatingAtoms, *, verbose: bool = False):
        self.finder = follow(group, type(self).__name__)
        universe = group.universe
        super().__init__(universe.atoms[self.finder.read], verbose=verbose)
        self._described = describe_group(group)

    def parameters(self) -> dict[str, object]:
        """Return the selections, which are saved with the results."""
        return {"group": self._described}

    def prepare(self) -> Ragged:
        """Find the atoms in the decoded atoms, and make the worker part."""
        return AtomRecords(self.finder)

    def finish(self, value: tuple[np.ndarray, np.ndarray]) -> None:
        """Store the atoms, and their number in each frame."""
        offsets, atoms = value
        counts = self.record_counts(offsets)
        if len(counts) and not len(atoms):
            warn(f"{type(self).__name__}: no frame has atoms of {self._described}")
        self.results = Results(
            table=table_of_records(self, "atoms", counts),
            provenance=self.record(),
            atoms=atoms.astype(np.int64, copy=False),
            counts=counts,
            offsets=offsets,
        )

    def time_correlation(
        self, function: str = "intermittent", *, tau_max: int = 20, residues: bool = False
    ) -> Results:
        r"""Compute the time correlation of the presence in the group, and the residence time.

        $h(t)$ is 1 while an atom is in the group, otherwise 0. Sums are over all atoms, and over
        all time origins $t$ for which the run has a frame $t + \tau$:

        | function | value |
        | --- | --- |
        | intermittent | $\sum h(t)\,h(t + \tau) / \sum h(t)$ |
        | continuous | $\sum h(t)\,h(t + 1) \cdots h(t + \tau) / \sum h(t)$ |

        The residence time is the integral over the lag time, by the trapezoidal rule. It omits
        values after the largest lag, so choose this lag such that the correlation has decayed. The
        95 % interval of the residence time is computed by jackknife over ten blocks of time
        origins. It is reliable if the run is at least 100 times as long as the residence time.

        Parameters
        ----------
        function : {"intermittent", "continuous"}
            Kind of correlation function.
        tau_max : int
            Largest lag, in frames of the run.
        residues : bool
            Correlate residues instead of atoms. A residue is in the group while any of its atoms
            is.

        Returns
        -------
        Results
            `tau`, lag times in ps, and `correlation`: ndarrays of float64, shape (tau_max + 1,);
            `residence_time` and `residence_time_interval`, half the width of its 95 % interval,
            float, ps. The interval is NaN if `tau_max` is more than a fifth of the run.

        Raises
        ------
        UnsupportedError
            Frames or their times are not equidistant, or damaged frames were left out.
        ValueError
            The function is unknown, a lag has no frames, or there are no atoms.
        """
        what = "residues" if residues else "atoms"
        members, offsets = self._members(residues), self.results.offsets
        return presence_correlation(
            self, members, offsets, what, function, tau_max, "residence time"
        )

    def stays(self, gap: int = 0, *, residues: bool = False) -> np.ndarray:
        """List the stays of atoms in the group, from entering to leaving it.

        The mean length of stays is the mean exit time. It is underestimated because the run
        truncates some stays, whether these are counted or left out.

        Parameters
        ----------
        gap : int
            An absence of up to this number of frames does not end a stay.
        residues : bool
            List stays of residues instead of atoms. A residue is in the group while any of its
            atoms is.

        Returns
        -------
        numpy.ndarray of records, shape (n_stays,)
            Fields `index` of the atom or residue, `first` and `last`, rows of the run's frames, all
            int64; and `is_whole`, bool, false if the run may begin or end within the stay,
            including an absence of `gap` frames. Sorted by atom, then by frame.

        Raises
        ------
        UnsupportedError
            Frames are not equidistant, or damaged frames were left out.
        ValueError
            The gap is negative.
        """
        check_presence(self, "stays")
        gap = whole_number("gap", gap, 0, unit="frames")
        rows = np.repeat(np.arange(self.n_frames), np.diff(self.results.offsets))
        index, first, last = stretches(self._members(residues), rows, gap)
        found = np.empty(len(index), STAY)
        found["index"], found["first"], found["last"] = index, first, last
        found["is_whole"] = (first > gap) & (last < self.n_frames - 1 - gap)
        return found

    #: Largest lag of the further table of time correlations, frames; None for no table.
    correlation_lags: int | None = None

    def further_tables(self) -> dict[str, Table]:
        """Return the table of time correlations of atoms, if `correlation_lags` is set."""
        if self.correlation_lags is None:
            return {}
        members, offsets = self._members(residues=False), self.results.offsets
        lags = self.correlation_lags
        found = presence_table(self, members, offsets, "atoms", lags, "residence time")
        return {"correlation": found}

    def _members(self, residues: bool) -> np.ndarray:
        """Indices of the atoms in the group in all frames, or of the residues of these atoms."""
        atoms = self.results.atoms  # raises `NotRunError` before a run
        return self.atomgroup.universe.atoms.resindices[atoms] if residues else atoms


def stretches(
    keys: np.ndarray, times: np.ndarray, gap: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find periods of presence; return key, first time and last time of each period.

    Corresponding elements of `keys` and `times` are a key, such as the index of an atom, and a time
    (an integer) at which it is present. Up to `gap` missing times do not end a period.

    Examples
    --------
    >>> key, first, last = stretches(np.array([7, 7, 4, 7]), np.array([2, 0, 1, 4]), 1)
    >>> key.tolist(), first.tolist(), last.tolist()
    ([4, 7], [1, 0], [1, 4])
    """
    order = np.lexsort((times, keys))
    keys, times = keys[order], times[order]
    is_first = np.ones(len(keys), bool)
    is_first[1:] = (np.diff(keys) != 0) | (np.diff(times) > gap + 1)
    is_last = np.append(is_first[1:], np.ones(min(1, len(keys)), bool))
    return keys[is_first], times[is_first], times[is_last]


def mean_survival(
    keys: np.ndarray, rows: np.ndarray, n_frames: int, origins: range, tau_max: int, gap: int
) -> np.ndarray:
    """Compute the mean fraction of keys that stay present up to each lag, at most `tau_max`.

    Keys are numbers of atoms or bonds. The mean is over time origins (frames) at which any key is
    present, and for which the run has a frame after the lag; NaN without such origins. Other
    arguments are as for `stretches`.

    Examples
    --------
    >>> keys, rows = np.array([7, 7, 4, 7]), np.array([0, 1, 1, 2])
    >>> mean_survival(keys, rows, 3, range(3), 2, 0)
    array([1.  , 0.75, 1.  ])
    """
    _, first, last = stretches(keys, rows, gap)
    values, begins = np.ones(tau_max + 1), np.array(origins)
    present = _count(first, last, n_frames)[begins]
    for lag in range(1, tau_max + 1):
        some = last - first >= lag
        stay = _count(first[some], last[some] - lag, n_frames)[begins]
        is_origin = (present > 0) & (begins + lag < n_frames)
        fractions = stay[is_origin] / present[is_origin]
        values[lag] = fractions.mean() if len(fractions) else np.nan
    return values


def _count(first: np.ndarray, last: np.ndarray, n_frames: int) -> np.ndarray:
    """Count the periods that contain each frame: int64, shape (n_frames,)."""
    begin, end = (np.bincount(ends, minlength=n_frames + 1) for ends in (first, last + 1))
    return np.cumsum(begin - end)[:n_frames]


def check_presence(analysis: AnalysisBase, what: str) -> None:
    """Raise `UnsupportedError` unless frames are equidistant and ordered, and all were read."""
    if n := len(analysis.damaged):
        left_out = f"{many(n, 'damaged frame')} {'was' if n == 1 else 'were'} left out"
        raise UnsupportedError(
            f"{analysis.name}: {left_out}, so that {what} cannot be correlated in time: exclude "
            "damaged frames from the run"
        )
    steps = np.diff(analysis.frames)
    if len(steps) and not (steps[0] > 0 and np.all(steps == steps[0])):
        raise UnsupportedError(
            f"{analysis.name}: a time correlation needs equidistant frames, but the frames are "
            f"{describe_frames(analysis.frames)}: leave out irregular frames, such as with "
            "--end or -b and -e, or use equidistant frames (-dt, --step)"
        )


def presence_correlation(
    analysis: AnalysisBase,
    keys: np.ndarray,
    offsets: np.ndarray,
    what: str,
    function: str,
    tau_max: int,
    name: str,
) -> Results:
    """Compute a time correlation function of presence, with integer counts.

    `keys` identify the atoms or bonds that are present in each frame, with `offsets` as in
    `AnalysisBase.finish`. `what` names them in texts, and `name` is the name of the integral.
    """
    one_of("function", function, *FUNCTIONS)
    check_presence(analysis, what)
    n_frames = analysis.n_frames
    tau_max = whole_number("tau_max", tau_max, 0, n_frames - 1, "frames")
    # Times of all keys in one array: sorted by key, then by row, without repeats.
    numbers = np.unique(keys, return_inverse=True)[1].reshape(-1)
    rows = np.repeat(np.arange(n_frames), np.diff(offsets))
    times = sorted_unique(2 * n_frames * numbers + rows)
    starts = block_starts(n_frames, tau_max)
    count = _survivors if function == "continuous" else _returns
    origins = _origins(np.bincount(times % (2 * n_frames), minlength=n_frames), starts, tau_max)
    if origins[:, -1].sum() == 0:
        raise ValueError(f"there are no {what} to correlate")
    found = BlockSums(count(times, n_frames, tau_max, starts), origins)
    values = found.sums.sum(axis=0) / origins.sum(axis=0)
    times_between = check_times(analysis)[0]
    tau = times_between[: tau_max + 1]
    integral = _integral(values, tau)
    interval = np.nan
    if len(starts) > 2:
        interval = float(
            jackknife_interval(np.array([_integral(one, tau) for one in found.without_each()]))
        )
    converged = is_converged(integral, times_between[-1])
    end = (
        f"; integrated up to a lag of {tau[-1]:.4g} {analysis.time_unit}, where the correlation "
        f"is {values[-1]:.2g}"
    )
    text = time_with_interval(
        integral, interval, converged=converged, end=end, unit=analysis.time_unit
    )
    columns = {analysis.lag_title: tau, "correlation": values}
    label = f"{function} correlation of {what}"
    legend = {"correlation": f"{name} {text}"}
    table = Table(columns, analysis.lag_title, legend, label, notes={f"{function} {name}": text})
    key = name.replace(" ", "_")
    return Results(
        table=table,
        provenance=analysis.record(),
        tau=tau,
        correlation=values,
        **{key: integral, f"{key}_interval": interval},
    )


def presence_table(
    analysis: AnalysisBase,
    keys: np.ndarray,
    offsets: np.ndarray,
    what: str,
    tau_max: int,
    name: str,
) -> Table:
    """Make a table of both functions of `presence_correlation`, up to `tau_max` or the last lag."""
    tau_max = min(tau_max, analysis.n_frames - 1)
    columns: dict[str, np.ndarray] = {}
    titles: dict[str, str] = {}
    notes: dict[str, str] = {}
    for function in FUNCTIONS:
        found = presence_correlation(analysis, keys, offsets, what, function, tau_max, name)
        columns |= {analysis.lag_title: found.tau, function: found.correlation}
        notes |= found.findings
        titles[function] = f"{function}, {found.findings[f'{function} {name}']}"
    return Table(columns, analysis.lag_title, titles, f"correlation of {what}", notes=notes)


def timeline_table(
    analysis: AnalysisBase, kind: str, labels: Sequence[str], rows: np.ndarray, places: np.ndarray
) -> Table:
    """Make a table with the presence (1 or 0) of atoms or bonds in each frame, drawn as bars.

    `rows` are indices of frames in the run, and `places` indices in `labels` of the atoms or bonds
    that are present in these frames. Indices beyond the end of `labels` are ignored.
    """
    names = [*dict.fromkeys(labels)][:MOST_MARKED]
    place_of = np.array([names.index(one) if one in names else -1 for one in labels] + [-1])
    places = place_of[np.minimum(places, len(labels))]
    is_there = np.zeros((analysis.n_frames, len(names)))
    is_there[rows[places >= 0], places[places >= 0]] = 1
    numbers = np.where(is_there > 0, 0, -1)
    is_there[analysis.left_out] = np.nan
    columns = dict(zip(names, is_there.T, strict=True))
    states = States(numbers, np.array(names, dtype=str), kind, [("present", PRESENT)])
    titles = {name: name for name in names}
    return table_in_time(analysis, columns, titles, kind, states=states, counts=names)


def map_table(
    analysis: AnalysisBase,
    residues: Residues,
    values: np.ndarray,
    title: str,
    label: str = "residue",
    colours: str = "viridis",
) -> Table:
    """Make a table of values of residues in each frame, shape (n_frames, n_residues), with a map.

    `title` contains the quantity and unit of the values; `label` is the label of the residues.
    """
    places = residues.resindices
    names = [*residue_labels(residues.universe.residues, places).values()]
    are_counts = values.dtype.kind == "i"
    values = with_gaps(values, analysis.left_out[:, None])
    unit = name_and_unit(title)[1]
    titles = {f"{name} ({unit})" if unit else name: name for name in names}
    columns = dict(zip(titles, values.T, strict=True))
    numbers = attribute_of(residues, "resids")
    parts = part_labels(names, places if numbers is None else numbers)
    low = 0 if are_counts else None
    states = States(values, parts, label, bar=title, colours=colours, low=low)
    counts = [*titles] if are_counts else []
    return table_in_time(
        analysis, columns, titles, title, states=states, counts=counts, no_mean=True
    )


def _integral(values: np.ndarray, tau: np.ndarray) -> float:
    """Integrate a correlation function up to its largest lag, by the trapezoidal rule, in ps."""
    return float(np.sum((values[1:] + values[:-1]) / 2 * np.diff(tau)))


def _origins(present: np.ndarray, starts: np.ndarray, tau_max: int) -> np.ndarray:
    """Count the keys that are present at the origins of each block: shape (n_blocks, n_lags).

    For each lag, only time origins count for which the run has a frame after the lag.
    """
    before = np.concatenate([[0], np.cumsum(present)])
    ends = len(present) - np.arange(tau_max + 1)
    return np.stack(
        [before[np.clip(ends, a, b)] - before[a] for a, b in itertools.pairwise(starts)]
    )


def _survivors(times: np.ndarray, n_frames: int, tau_max: int, starts: np.ndarray) -> np.ndarray:
    """Count, by block and lag, the time origins at which a key is present and stays for the lag."""
    ends = np.flatnonzero(np.diff(times, append=times[-1] + 2) != 1)
    last = times[ends] % (2 * n_frames)
    first = last - np.diff(ends, prepend=-1) + 1
    counts = []
    for begin, end in itertools.pairwise(starts):
        some = (first < end) & (last >= begin)
        # A period of presence has one or more time origins in the block. It continues after them
        # for `least` to `most` frames; each of these numbers occurs once.
        most = last[some] - np.maximum(first[some], begin)
        least = last[some] - np.minimum(last[some], end - 1)
        stays = _count(least, most, n_frames)
        counts.append(np.cumsum(stays[::-1])[::-1][: tau_max + 1])
    return np.stack(counts)


def _returns(times: np.ndarray, n_frames: int, tau_max: int, starts: np.ndarray) -> np.ndarray:
    """Count time origins of each block for which a key is present again after each lag.

    `times` are sorted by key. Pairs of times are counted directly. For keys that are present often,
    Fourier transforms are used; rounding errors of their sums are far below one half, so the
    counts are exact.
    """
    numbers = times // (2 * n_frames)
    n_blocks, reached, size = len(starts) - 1, *_transform_size(starts, tau_max)
    pairs = np.bincount(numbers).astype(float) ** 2 * (tau_max / n_frames)
    often = pairs > PAIRS_AS_TRANSFORM * n_blocks * size * np.log2(size)
    is_often = often[numbers]
    counts = _returns_by_transforms(times[is_often], n_frames, tau_max, starts, reached, size)
    times = times[~is_often]
    blocks = np.searchsorted(starts, np.arange(n_frames), side="right") - 1
    # For each origin, the index of the first count of its block, minus the origin's time. Adding
    # the time of a later presence gives the index of the count for the lag between both times.
    begins = blocks[times % (2 * n_frames)] * (tau_max + 1) - times
    counts[:, 0] += np.bincount(begins + times, minlength=counts.size).reshape(counts.shape)[:, 0]
    for k in range(1, min(tau_max, len(times) - 1) + 1):
        is_near = times[k:] - times[:-k] <= tau_max
        if not is_near.any():
            break
        near = (begins[:-k] + times[k:])[is_near]
        counts += np.bincount(near, minlength=counts.size).reshape(counts.shape)
    return counts


def _transform_size(starts: np.ndarray, tau_max: int) -> tuple[np.ndarray, int]:
    """Choose the blocks that are correlated with each block, and the size of Fourier transforms.

    Block k is correlated with blocks k to `reached[k]` - 1, which contain all frames up to
    `tau_max` after it. The size is so large that periodicity does not change counts at these lags.
    """
    reached = np.searchsorted(starts, np.minimum(starts[1:] + tau_max, starts[-1]))
    least = int(max(np.diff(starts).max() + tau_max, (starts[reached] - starts[:-1]).max()))
    return reached, min(odd << (-(-least // odd) - 1).bit_length() for odd in (1, 3, 5, 9, 15))


def _returns_by_transforms(
    times: np.ndarray,
    n_frames: int,
    tau_max: int,
    starts: np.ndarray,
    reached: np.ndarray,
    size: int,
) -> np.ndarray:
    """Compute the counts of `_returns` by Fourier transforms of `size` points per block."""
    n_blocks = len(starts) - 1
    pairs = [(one, other) for one in range(n_blocks) for other in range(one, reached[one])]
    products = np.zeros((len(pairs), size // 2 + 1), np.complex128)
    firsts = np.flatnonzero(np.diff(times // (2 * n_frames), prepend=-1))
    some = max(1, TRANSFORMED // (n_blocks * size))
    for first in range(0, len(firsts), some):
        part = firsts[first : first + some]
        end = firsts[first + some] if first + some < len(firsts) else len(times)
        rows = np.repeat(np.arange(len(part)), np.diff(part, append=end))
        frames = times[part[0] : end] % (2 * n_frames)
        blocks = np.searchsorted(starts, frames, side="right") - 1
        there = np.zeros((n_blocks, len(part), size))
        there[blocks, rows, frames - starts[blocks]] = 1
        found = np.fft.rfft(there)
        conjugate = found.conj()
        for product, (one, other) in zip(products, pairs, strict=True):
            product += np.einsum("ij,ij->j", conjugate[one], found[other])
    counts = np.zeros((n_blocks, tau_max + 1), np.int64)
    for product, (one, other) in zip(products, pairs, strict=True):
        # Shift the lags by the distance between the beginnings of both blocks.
        turns = (starts[other] - starts[one]) * np.arange(size // 2 + 1) % size
        product *= np.exp(-2j * np.pi / size * turns)
        counts[one] += np.rint(np.fft.irfft(product, size)[: tau_max + 1]).astype(np.int64)
    return counts


class AtomRecords(Ragged):
    """Worker part: indices of the atoms that an updating group contains in each frame."""

    returns_new = splits_frames = True

    def __init__(self, finder: GroupFinder):
        self._finder = finder

    def compute_records(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Find the atoms that the group contains in each frame of a block."""
        counts, places = self._finder.find(block)
        return counts, self._finder.read[places]
