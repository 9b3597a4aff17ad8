"""Groups that change: atoms that are chosen anew in each frame, how long they stay, and return."""

import itertools
from collections.abc import Sequence

import numpy as np

from paceline._util.arguments import one_of, whole_number
from paceline._util.sorting import sorted_unique
from paceline.analysis.base import AnalysisBase, check_times, table_in_time, table_of_records
from paceline.analysis.blocks import (
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
from paceline.analysis.updating import GroupFinder, describe_group, follow
from paceline.block import Block
from paceline.contract.atoms import Residues, UpdatingAtoms, attribute_of
from paceline.contract.declaration import CORRELATION, LAGS, Declaration
from paceline.contract.kinds import Ragged
from paceline.contract.run_info import describe_frames
from paceline.errors import UnsupportedError, warn
from paceline.performance.number_format import many

#: A stay of an atom or residue in a group: its index, and rows of the run's frames.
STAY = np.dtype([("index", np.int64), ("first", np.int64), ("last", np.int64), ("is_whole", bool)])

#: Correlations in time of what is in some frames and not in others.
FUNCTIONS = ("intermittent", "continuous")
#: Pairs of times that are counted in the time of a transform of n points, in parts of n log2(n).
PAIRS_AS_TRANSFORM = 0.1
#: Points that are transformed at a time.
TRANSFORMED = 2**18
#: Colour of the frames in which something is present.
PRESENT = "#1f4e79"


class SelectedAtoms(AnalysisBase):
    """Atoms of an updating group in each frame, such as the waters of the first shell.

    Workers evaluate the selection natively: `around`, `sphzone`, `sphlayer`, `isolayer`, `cyzone`,
    `cylayer`, `point`, `prop`, `same … as`, `byres`, `global`, `group`, `and`, `or` and `not`, of
    any group and with any `periodic=`. All other keywords do not depend on positions: MDAnalysis
    evaluates them once. The atoms of a frame, and their order, are those that MDAnalysis selects in
    it.

    Parameters
    ----------
    group : UpdatingAtomGroup
        Made by `select_atoms(…, updating=True)`; of a fixed group, or of another updating one.

    Attributes
    ----------
    results.atoms : numpy.ndarray of int64, shape (n_selected,)
        Indices of the atoms of all frames, one after another. More than 1 GiB are in a temporary
        file.
    results.counts : numpy.ndarray of int64, shape (n_frames,)
        Number of atoms in each frame. If damaged frames were left out it is of float64, and NaN for
        these, which have no atoms.
    results.offsets : numpy.ndarray of int64, shape (n_frames + 1,)
        Those of frame `k` of the run are `atoms[offsets[k]:offsets[k + 1]]`.

    Raises
    ------
    UnsupportedError
        The group cannot be evaluated by workers: a keyword of your own, `bonded` or `smarts` of
        atoms that change, a base group that has an atom twice.
    TypeError
        The group does not update itself.
    ValueError
        A distance that is negative or not finite. In the run, as `AnalysisError`: a position that
        is not finite, a cell that is impossible or lower than the distance.

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
        summary="atoms selected anew in each frame: their number, and as .npz each of them",
        description=(
            "Number of atoms that a selection finds in each frame, such as the waters of the "
            "first shell; as .npz also their indices (atoms), those of frame k from offsets[k] "
            "to offsets[k + 1]."
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
        """The selections."""
        return {"group": self._described}

    def prepare(self) -> Ragged:
        """Find the atoms among those that are read."""
        return AtomRecords(self.finder)

    def finish(self, value: tuple[np.ndarray, np.ndarray]) -> None:
        """Keep the atoms, and count them."""
        offsets, atoms = value
        counts = self.record_counts(offsets)
        if len(counts) and not len(atoms):
            warn(f"{type(self).__name__}: in no frame are there atoms of {self._described}")
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
        r"""Compute the correlation in time of being in the group, and the residence time.

        With $h(t)$, 1 while an atom is in the group and else 0, and sums over all atoms and origins
        $t$ that have a frame $t + \tau$:

        | function | value |
        | --- | --- |
        | intermittent | $\sum h(t)\,h(t + \tau) / \sum h(t)$ |
        | continuous | $\sum h(t)\,h(t + 1) \cdots h(t + \tau) / \sum h(t)$ |

        The residence time is the integral over the lags, by the trapezoidal rule. It misses what
        comes after the largest lag: choose that so that the correlation has decayed. Its 95 %
        interval is by ten blocks of origins, of which each is left out once; it can be believed
        where the run is 100 times as long as the residence time.

        Parameters
        ----------
        function : {"intermittent", "continuous"}
            The function.
        tau_max : int
            Largest lag, frames of the run.
        residues : bool
            Correlate residues instead: one is in the group while any of its atoms is.

        Returns
        -------
        Results
            `tau`, lags in ps, and `correlation`: ndarrays of float64, shape (tau_max + 1,);
            `residence_time` and `residence_time_interval`, half of the width of its 95 % interval,
            float, ps. The latter is NaN where `tau_max` is more than a fifth of the run.

        Raises
        ------
        UnsupportedError
            Frames or their times are not equidistant, or damaged ones were left out.
        ValueError
            An unknown function, a lag without frames, or no atoms.
        """
        what = "residues" if residues else "atoms"
        members, offsets = self._members(residues), self.results.offsets
        return presence_correlation(
            self, members, offsets, what, function, tau_max, "residence time"
        )

    def stays(self, gap: int = 0, *, residues: bool = False) -> np.ndarray:
        """List the stays of atoms in the group, from entering it to leaving it.

        The mean of their lengths is that of the exit times. It is too short if stays that the run
        cuts are counted, and if they are left out.

        Parameters
        ----------
        gap : int
            An absence of up to so many frames does not end a stay.
        residues : bool
            Stays of residues instead: one is in the group while any of its atoms is.

        Returns
        -------
        numpy.ndarray of records, shape (n_stays,)
            The fields `index` of the atom or residue, `first` and `last`, frames of the run (their
            rows), all int64; and `is_whole`, bool: false if the run begins or ends within it, or
            may do so, by `gap`. In the order of atoms, then of frames.

        Raises
        ------
        UnsupportedError
            Frames are not equidistant, or damaged ones were left out.
        ValueError
            A negative gap.
        """
        check_presence(self, "stays")
        gap = whole_number("gap", gap, 0, unit="frames")
        rows = np.repeat(np.arange(self.n_frames), np.diff(self.results.offsets))
        index, first, last = stretches(self._members(residues), rows, gap)
        found = np.empty(len(index), STAY)
        found["index"], found["first"], found["last"] = index, first, last
        found["is_whole"] = (first > gap) & (last < self.n_frames - 1 - gap)
        return found

    #: Largest lag of the further table of correlations in time, frames; None for no such table.
    correlation_lags: int | None = None

    def further_tables(self) -> dict[str, Table]:
        """Tabulate the correlations in time of atoms, if `correlation_lags` asks for them."""
        if self.correlation_lags is None:
            return {}
        members, offsets = self._members(residues=False), self.results.offsets
        lags = self.correlation_lags
        found = presence_table(self, members, offsets, "atoms", lags, "residence time")
        return {"correlation": found}

    def _members(self, residues: bool) -> np.ndarray:
        """Atoms of all frames, or their residues."""
        atoms = self.results.atoms  # or `NotRunError`
        return self.atomgroup.universe.atoms.resindices[atoms] if residues else atoms


def stretches(
    keys: np.ndarray, times: np.ndarray, gap: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find stretches of time in which something is there: what, the first time, and the last.

    `keys` say what is there, and `times` when, whole numbers. Up to `gap` missing times do not end
    a stretch.

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
    """Compute which part of what is there stays, after each lag up to `tau_max`: its mean.

    It is that over the origins, frames, of which any is there and that have a frame after the lag;
    NaN without any. Other arguments are as for `stretches`.

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
    """Count in each frame the stretches from `first` to `last`: int64, shape (n_frames,)."""
    begin, end = (np.bincount(ends, minlength=n_frames + 1) for ends in (first, last + 1))
    return np.cumsum(begin - end)[:n_frames]


def check_presence(analysis: AnalysisBase, what: str) -> None:
    """Raise `UnsupportedError` where frames make no series of what is in each of them."""
    if n := len(analysis.damaged):
        left_out = f"{many(n, 'damaged frame')} {'was' if n == 1 else 'were'} left out"
        raise UnsupportedError(
            f"{analysis.name}: {left_out}, so that {what} cannot be correlated in time: run it on "
            "frames without damage"
        )
    steps = np.diff(analysis.frames)
    if len(steps) and not (steps[0] > 0 and np.all(steps == steps[0])):
        raise UnsupportedError(
            f"{analysis.name}: a correlation in time needs equidistant frames, and those of the "
            f"run are {describe_frames(analysis.frames)}: leave out the irregular ones, such as by "
            "--end or -b and -e, or take frames at equal distances (-dt, --step)"
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
    """Correlate in time what is in some frames and not in others, in whole numbers.

    `keys` say what is there, of all frames; `offsets` are as `AnalysisBase.finish` gets them. The
    integral has this name, and an interval.
    """
    one_of("function", function, *FUNCTIONS)
    check_presence(analysis, what)
    n_frames = analysis.n_frames
    tau_max = whole_number("tau_max", tau_max, 0, n_frames - 1, "frames")
    # Of each its rows follow each other, once each, behind those of others.
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
    """Tabulate both functions of `presence_correlation`, up to a lag or the longest there is."""
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
    """Tabulate in which frames the first things of a kind are, 1 or 0, drawn as a bar code.

    `places` are places in `labels`, and those behind the end are left out; `rows` are those of the
    run's frames.
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
    """Tabulate values of residues in each frame, shape (n_frames, n_residues), drawn as a map.

    Values are of the quantity and unit in `title`; `label` is that of the residues.
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
    """Integrate a correlation up to its largest lag, by trapezoids. The integral is in ps."""
    return float(np.sum((values[1:] + values[:-1]) / 2 * np.diff(tau)))


def _origins(present: np.ndarray, starts: np.ndarray, tau_max: int) -> np.ndarray:
    """Count what is there in frames of each block that have a frame after each lag."""
    before = np.concatenate([[0], np.cumsum(present)])
    ends = len(present) - np.arange(tau_max + 1)
    return np.stack(
        [before[np.clip(ends, a, b)] - before[a] for a, b in itertools.pairwise(starts)]
    )


def _survivors(times: np.ndarray, n_frames: int, tau_max: int, starts: np.ndarray) -> np.ndarray:
    """Count origins of each block from which a one stays for each lag: `times` of all, in order."""
    ends = np.flatnonzero(np.diff(times, append=times[-1] + 2) != 1)
    last = times[ends] % (2 * n_frames)
    first = last - np.diff(ends, prepend=-1) + 1
    counts = []
    for begin, end in itertools.pairwise(starts):
        some = (first < end) & (last >= begin)
        # From the origins of a stretch in the block it stays for so many frames, each once.
        most = last[some] - np.maximum(first[some], begin)
        least = last[some] - np.minimum(last[some], end - 1)
        stays = _count(least, most, n_frames)
        counts.append(np.cumsum(stays[::-1])[::-1][: tau_max + 1])
    return np.stack(counts)


def _returns(times: np.ndarray, n_frames: int, tau_max: int, starts: np.ndarray) -> np.ndarray:
    """Count origins of each block for which a one is there again after each lag.

    Given the `times` of all, in order. By pairs of times; where something is there often, by
    Fourier transforms, whose sums are whole numbers, too, but for rounding that is far below a
    half.
    """
    numbers = times // (2 * n_frames)
    n_blocks, reached, size = len(starts) - 1, *_transform_size(starts, tau_max)
    pairs = np.bincount(numbers).astype(float) ** 2 * (tau_max / n_frames)
    often = pairs > PAIRS_AS_TRANSFORM * n_blocks * size * np.log2(size)
    is_often = often[numbers]
    counts = _returns_by_transforms(times[is_often], n_frames, tau_max, starts, reached, size)
    times = times[~is_often]
    blocks = np.searchsorted(starts, np.arange(n_frames), side="right") - 1
    # Where the counts of the block of each begin, less its time: a later time gives the lag.
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
    """Find the end of the blocks that lags from each block reach, and the points of transforms.

    With so many points, no lag between two of these blocks is taken for one up to `tau_max`.
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
    """Count the same by Fourier transforms of `size` points of each block, of some at a time."""
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
        # A later block's frames come so much later than the first one's.
        turns = (starts[other] - starts[one]) * np.arange(size // 2 + 1) % size
        product *= np.exp(-2j * np.pi / size * turns)
        counts[one] += np.rint(np.fft.irfft(product, size)[: tau_max + 1]).astype(np.int64)
    return counts


class AtomRecords(Ragged):
    """Worker part: indices of the atoms of an updating group."""

    returns_new = True

    def __init__(self, finder: GroupFinder):
        self._finder = finder

    def compute_records(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Find the atoms of a block's frames."""
        counts, places = self._finder.find(block)
        return counts, self._finder.read[places]
