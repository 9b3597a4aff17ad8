"""Worker parts of `nojump`, which track atoms across the faces of the cell."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paceline import _core
from paceline.block import CELL_WIDTH, Block, upright_vectors
from paceline.contract.analysis_kinds import Reduction
from paceline.contract.transform_interface import Follower, WorkerScan
from paceline.errors import warn
from paceline.performance.number_format import many

#: Unit of the steps of molecules, Å. A step is the shortest displacement of a molecule's center
#: from one frame to the next, rounded to a whole multiple of this unit.
STEP = 2.0**-24
#: Maximum magnitude of summed steps, in units of `STEP`; far below the range of 64 bits.
MOST_STEPS = 2**60


class _RecordedImages(NamedTuple):
    """Images in some frames of a block: for each atom, the number of cells by which it is moved.

    If molecules are tracked, their summed steps are recorded instead.
    """

    frames: np.ndarray
    images: np.ndarray


class _JoinedImages(NamedTuple):
    """Images in two adjacent ranges of frames; for speed, their arrays are not concatenated.

    Images of `right` are relative to its first frame. `between` are the images in that first frame,
    and in the skipped frames `crossed` before it.
    """

    left: "_RecordedImages | _JoinedImages"
    crossed: np.ndarray
    between: np.ndarray
    right: "_RecordedImages | _JoinedImages"


@dataclass(frozen=True)
class ImageCounts:
    """Images counted over frames `first` to `last`, relative to frame `first`.

    Attributes
    ----------
    ends : numpy.ndarray, shape (2, n_followed, 3)
        Positions of atoms, or centers of molecules, in the first and in the last frame, Å.
    cells : numpy.ndarray of float64, shape (2, 19)
        Cells of the first and last frame, in the layout of `FrameBuffer`.
    moved : numpy.ndarray, shape (n_followed, 3)
        Images in the last frame.
    noted : _RecordedImages or _JoinedImages
        Images in the wanted frames after `first`, up to `last`.
    changes : numpy.ndarray of int64
        Frames whose cell differs by more than half an edge from the cell of the previous frame.
    """

    first: int
    last: int
    ends: np.ndarray
    cells: np.ndarray
    moved: np.ndarray
    noted: _RecordedImages | _JoinedImages
    changes: np.ndarray


class CoreNoJump(WorkerScan):
    """Worker part of `nojump` that tracks atoms: the compiled module counts their images."""

    #: True if a cell that is sheared by a whole edge counts as unchanged.
    lengths_only = False
    #: Largest number of an image that can be stored.
    most = int(np.iinfo(np.int16).max)

    def __init__(self, n_atoms: int, followed: np.ndarray):
        self._n_atoms, self._followed = n_atoms, followed
        self._core = _core.NoJump(n_atoms, followed)
        self._of_ends = _core.NoJump(len(followed), np.arange(len(followed)))

    def __reduce__(self) -> tuple[type, tuple]:
        return CoreNoJump, (self._n_atoms, self._followed)

    @property
    def state_bytes(self) -> int:
        """Size of the images of one frame, bytes."""
        return 6 * len(self._followed)

    def no_states(self, n: int) -> np.ndarray:
        """Return images in `n` frames, int16, shape (n, n_followed, 3): all 0."""
        return np.zeros((n, len(self._followed), 3), np.int16)

    def apply(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> list[tuple[int, str]]:
        """Return the rows in which atoms cannot be tracked, with reasons.

        Their positions become NaN; all other positions are unchanged.
        """
        return self._core.check(positions, cells)

    def apply_from(
        self, state: np.ndarray, positions: np.ndarray, cells: np.ndarray
    ) -> list[tuple[int, str]]:
        """Move atoms to their images.

        `state` contains the images in each frame, or only in the first readable frame: int16, shape
        (n_frames, n_followed, 3) or (1, n_followed, 3).
        """
        return self._core.move_to(state, positions, cells)

    def follower(self, skip_damaged: bool) -> Follower:
        """Create the object that moves atoms to their images, from the first frame on."""
        return _Follower(
            _core.NoJumpFollower(self._core, skip_damaged), lengths_only=self.lengths_only
        )

    def scan_of(self, frames: np.ndarray) -> "NoJumpScan":
        """Create the worker part that finds the images in frames with these increasing numbers."""
        return NoJumpScan(self, frames)

    def count(
        self, positions: np.ndarray, cells: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Count the images of atoms in a block, relative to its first frame.

        Return the positions in the first and in the last frame, the images in the last frame, and
        the images in the frames `rows`.
        """
        ends = np.stack([positions[k].take(self._followed, axis=0) for k in (0, -1)])
        return ends, *self._core.scan(positions, cells, rows)

    def between(self, ends: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Return the images of atoms in the second of two frames, relative to the first one.

        `ends` are the positions in the two frames.
        """
        moved, _ = self._of_ends.scan(ends, cells, np.zeros(0, np.int64))
        return moved.astype(np.int32)

    def checked_images(self, images: np.ndarray) -> np.ndarray:
        """Convert images to the stored dtype; `OverflowError` if an atom has moved too far."""
        if _largest(images) > np.iinfo(np.int16).max:
            raise OverflowError(f"nojump: an atom has moved by {_largest(images)} cells")
        return images.astype(np.int16)


class CoreSteps(WorkerScan):
    """Worker part of `nojump(scheme="tor")`, which sums steps of molecules in units of `STEP`.

    Parameters
    ----------
    n_atoms : int
        Number of atoms of a block.
    columns : numpy.ndarray of int64, shape (n_followed,)
        Columns of the atoms of molecules, sorted by molecule.
    weights : numpy.ndarray of float64, shape (n_followed,)
        Mass of each of these atoms as a fraction of its molecule's mass.
    firsts : numpy.ndarray of int64, shape (n_molecules,)
        Index in `columns` of the first atom of each molecule.
    """

    # Shortest steps do not change if the cell is sheared by a whole edge.
    lengths_only = True
    most = MOST_STEPS

    def __init__(self, n_atoms: int, columns: np.ndarray, weights: np.ndarray, firsts: np.ndarray):
        self._made_of = n_atoms, columns, weights, firsts
        self._columns, self._weights, self._firsts = columns, weights, firsts
        self._sizes = np.diff(firsts, append=len(columns))
        self._core = _core.NoJump(n_atoms, np.sort(columns))

    def __reduce__(self) -> tuple[type, tuple]:
        return CoreSteps, self._made_of

    @property
    def state_bytes(self) -> int:
        """Size of the summed steps to one frame, bytes."""
        return 24 * len(self._firsts)

    def no_states(self, n: int) -> np.ndarray:
        """Return summed steps to `n` frames, int64, shape (n, n_molecules, 3): all 0."""
        return np.zeros((n, len(self._firsts), 3), np.int64)

    def apply(
        self, positions: np.ndarray, cells: np.ndarray, vectors: Sequence[np.ndarray] = ()
    ) -> list[tuple[int, str]]:
        """Return the rows in which molecules cannot be tracked, with reasons.

        Their positions become NaN; all other positions are unchanged.
        """
        return self._core.check(positions, cells)

    def apply_from(
        self, state: np.ndarray, positions: np.ndarray, cells: np.ndarray
    ) -> list[tuple[int, str]]:
        """Move molecules by their summed steps.

        `state` contains the summed steps to each frame, or only to the first readable frame.
        """
        refused = self.apply(positions, cells)
        rows = _readable(cells, refused)
        if len(state) == len(positions):
            self.move(positions, rows, state[rows])
        elif len(rows):
            _, steps = self.steps(_select_rows(positions, rows), cells[rows])
            self.move(positions, rows, state + steps)
        return refused

    def follower(self, skip_damaged: bool) -> Follower:
        """Create the object that moves molecules, from the first frame of the trajectory on."""
        return _Follower(_InTurn(self), lengths_only=self.lengths_only)

    def scan_of(self, frames: np.ndarray) -> "NoJumpScan":
        """Create the worker part that finds the summed steps to frames with these numbers."""
        return NoJumpScan(self, frames)

    def count(
        self, positions: np.ndarray, cells: np.ndarray, rows: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Sum steps over frames, from the first frame on.

        Return the centers in the first and in the last frame, the sums up to the last frame, and
        the sums up to the frames `rows`.
        """
        centers, steps = self.steps(positions, cells)
        return centers[[0, -1]], steps[-1], steps[rows]

    def between(self, ends: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Return the steps of molecules between two frames; `ends` are the centers in both."""
        return _sum_steps(_core.molecule_steps(ends, _core.lattices(cells)))[1]

    def checked_images(self, steps: np.ndarray) -> np.ndarray:
        """Return summed steps unchanged; raise `OverflowError` if they are too large."""
        return _sum_steps(steps)

    def steps(self, positions: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute centers, and the summed steps from the first frame to each frame."""
        found = _core.centers(positions, self._columns, self._sizes, self._weights)
        centers = found.astype(np.float64)
        return centers, _sum_steps(_core.molecule_steps(centers, _core.lattices(cells)))

    def move(self, positions: np.ndarray, rows: np.ndarray, steps: np.ndarray) -> None:
        """Move molecules in some rows of a block by their steps."""
        _core.move_molecules(positions, rows, self._columns, self._sizes, steps)


def _readable(cells: np.ndarray, refused: Sequence[tuple[int, str]]) -> np.ndarray:
    """Return the rows of frames that were read, and in which atoms can be tracked."""
    known = ~np.isnan(cells).any(axis=1)
    known[[row for row, _ in refused]] = False
    return np.flatnonzero(known)


def _select_rows(positions: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Select rows of positions by increasing indices; if all are selected, without a copy."""
    return positions if len(rows) == len(positions) else positions[rows]


def _sum_steps(steps: np.ndarray) -> np.ndarray:
    """Return summed steps unchanged; raise `OverflowError` if they exceed `MOST_STEPS`."""
    if _largest(steps) > MOST_STEPS:
        raise OverflowError("a particle has moved too far across the cell to be tracked")
    return steps


class _InTurn:
    """Moves molecules, block after block; a thread waits until the previous block's sums are known.

    The `follower` of `CoreSteps` uses it.
    """

    def __init__(self, steps: CoreSteps):
        self._of = steps
        self._changed = threading.Condition()
        self._next: int | None = 0
        self._steps = steps.no_states(1)[0]
        self._last: np.ndarray | None = None

    def move_on(
        self,
        number: int,
        positions: np.ndarray,
        cells: np.ndarray,
        state: np.ndarray | None,
    ) -> list[tuple[int, str]] | None:
        refused = self._of.apply(positions, cells)
        rows = _readable(cells, refused)
        steps = self._of.no_states(0)
        if len(rows):
            centers, steps = self._of.steps(_select_rows(positions, rows), cells[rows])
        with self._changed:
            self._changed.wait_for(lambda: self._next is None or self._next >= number)
            if self._next != number:
                return None
            begin = self._steps
            if len(rows):
                if self._last is not None:
                    ends, of_next = np.stack([self._last, centers[0]]), cells[rows[[0, 0]]]
                    begin = begin + self._of.between(ends, of_next)
                self._steps, self._last = _sum_steps(begin + steps[-1]), centers[-1]
            self._next += 1
            self._changed.notify_all()
        steps += begin
        self._of.move(positions, rows, steps)
        if state is not None:
            state[:] = begin
        return refused

    def close(self) -> None:
        with self._changed:
            self._next = None
            self._changed.notify_all()


class NoJumpScan(Reduction):
    """Worker part of the first of two passes: counts images relative to a block's first frame.

    Images, or summed steps of molecules, are recorded for the frames `wanted`.
    """

    def __init__(self, nojump: CoreNoJump | CoreSteps, wanted: np.ndarray):
        self._nojump, self._wanted = nojump, wanted

    def compute(self, block: Block) -> ImageCounts | None:
        """Count images over adjacent frames; None if there are no frames.

        If a wanted frame was skipped, the images of the next frame are recorded in its place.
        """
        if len(block) == 0:
            return None
        frames, cells, wanted = block.frames, block.cells, self._wanted
        noted_frames = wanted[(wanted > frames[0]) & (wanted <= frames[-1])]
        rows = np.searchsorted(frames, noted_frames).astype(np.int64)
        ends, moved, images = self._nojump.count(block.raw[0], cells, rows)
        vectors = upright_vectors(cells)
        changes = frames[1:][changed_cells(vectors, lengths_only=self._nojump.lengths_only)]
        noted = _RecordedImages(noted_frames, images)
        first, last = int(frames[0]), int(frames[-1])
        return ImageCounts(first, last, ends, cells[[0, -1]], moved, noted, changes)

    def merge(self, left: ImageCounts | None, right: ImageCounts | None) -> ImageCounts | None:
        """Merge the counts of adjacent ranges of frames, which is exact for whole numbers."""
        if left is None or right is None:
            return right if left is None else left
        nojump = self._nojump
        ends = np.stack([left.ends[1], right.ends[0]])
        cells = np.stack([left.cells[1], right.cells[0]])
        between = left.moved + nojump.between(ends, cells)
        crossed = self._wanted[(self._wanted > left.last) & (self._wanted <= right.first)]
        met = changed_cells(upright_vectors(cells), lengths_only=nojump.lengths_only)
        return ImageCounts(
            left.first,
            right.last,
            np.stack([left.ends[0], right.ends[1]]),
            np.stack([left.cells[0], right.cells[1]]),
            nojump.checked_images(right.moved + between),
            _JoinedImages(left.noted, crossed, nojump.checked_images(between), right.noted),
            np.concatenate([left.changes, np.array([right.first])[met], right.changes]),
        )

    def states(self, merged: ImageCounts | None) -> tuple[np.ndarray, np.ndarray]:
        """Return images in each wanted frame, and the frames at which the cell changes strongly.

        Images are int16, shape (n_wanted, n_followed, 3); if the steps of molecules are tracked
        instead, the steps are int64. Values before the first readable frame and after the last one
        are 0. At the returned frames, the cell differs by more than half an edge from the cell of
        the previous frame.
        """
        found = self._nojump.no_states(len(self._wanted))
        if merged is None:
            return found, np.zeros(0, np.int64)
        begin = np.zeros(found.shape[1:], np.result_type(found.dtype, np.int32))
        self._store_images(merged.noted, begin, found)
        return found, merged.changes

    def _store_images(
        self, noted: _RecordedImages | _JoinedImages, begin: np.ndarray, found: np.ndarray
    ) -> None:
        """Add `begin`, the images in the first frame, to recorded images; store sums in `found`."""
        if isinstance(noted, _JoinedImages):
            self._store_images(noted.left, begin, found)
            self._store_images(
                _RecordedImages(noted.crossed, noted.between[np.newaxis]), begin, found
            )
            self._store_images(noted.right, begin + noted.between, found)
        elif len(noted.frames):
            row = int(np.searchsorted(self._wanted, noted.frames[0]))
            places = found[row : row + len(noted.frames)]
            if _largest(noted.images) + _largest(begin) <= self._nojump.most:
                np.add(noted.images, begin.astype(found.dtype), out=places)
            else:
                for place, one in zip(
                    places, np.broadcast_to(noted.images, places.shape), strict=True
                ):
                    place[:] = self._nojump.checked_images(one + begin)


class _Follower:
    """Moves atoms to their images, or molecules by their steps, block after block."""

    def __init__(self, core: _core.NoJumpFollower | _InTurn, *, lengths_only: bool):
        self._core, self._lengths_only = core, lengths_only
        self._cells: dict[int, np.ndarray] = {}

    def move_on(
        self,
        number: int,
        positions: np.ndarray,
        cells: np.ndarray,
        state: np.ndarray | None = None,
    ) -> list[tuple[int, str]] | None:
        """Move a block's atoms, and store the images in its first readable frame in `state`.

        Returns the rows in which atoms cannot be tracked, or None after `close`.
        """
        if state is not None and not state.size:
            # Pass None, because empty views of one array have the same address. The compiled module
            # does not allow two threads to write to one address.
            state = None
        refused = self._core.move_on(number, positions, cells, state)
        if refused is not None:
            known = self._cells[number] = cells.copy()
            if refused:  # the assignment takes 35 µs even without rows
                # The cells of frames that could not be read are NaN already.
                known[[row for row, _ in refused]] = np.nan
        return refused

    def close(self) -> None:
        """Release the threads that wait for earlier blocks."""
        self._core.close()

    @property
    def changes(self) -> np.ndarray:
        """Frames whose cell differs by more than half an edge from that of the previous frame."""
        blocks = [self._cells[number] for number in sorted(self._cells)]
        cells = np.concatenate([np.empty((0, CELL_WIDTH)), *blocks])
        frames = np.flatnonzero(~np.isnan(cells).any(axis=1))
        vectors = upright_vectors(cells[frames])
        return frames[1:][changed_cells(vectors, lengths_only=self._lengths_only)]


def _largest(numbers: np.ndarray) -> int:
    """Return the largest magnitude of integers, 0 without any; no copy is made."""
    return max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))


def changed_cells(cells: np.ndarray, *, lengths_only: bool = False) -> np.ndarray:
    """Return a mask of cells that differ from the previous cell by more than half an edge.

    `cells` has shape (n_cells, 3, 3), with vector a along x and b in the xy plane. The mask has
    shape (n_cells - 1,). With `lengths_only`, a cell that is sheared by a whole edge counts as
    unchanged.

    Examples
    --------
    >>> cells = np.array([np.eye(3), np.eye(3) * 1.4, np.eye(3) * 2.2])
    >>> changed_cells(cells)
    array([False,  True])
    """
    edges = np.diagonal(cells, axis1=1, axis2=2)
    half = np.minimum(edges[1:], edges[:-1]) / 2
    differences = np.diff(edges if lengths_only else cells, axis=0)
    over = np.abs(differences) > (half if lengths_only else half[:, np.newaxis])
    return over.any(axis=tuple(range(1, over.ndim)))


def warn_of_jumps(
    path: str, scheme: str, one: str, left_out: Sequence[int] | np.ndarray, changes: np.ndarray
) -> None:
    """Warn of frames at which `one` (such as "an atom") may have been tracked wrongly.

    `path` begins the messages, and `scheme` names the transformation. Such frames are next to
    skipped frames, or the cell changes at them by more than half an edge.
    """
    if len(left_out):
        warn(
            f"{path}: {many(len(left_out), 'frame')} left out, the first is {min(left_out)}; "
            f"{scheme} continued from the frame before, as if no {one.split()[1]} had moved by "
            "more "
            "than half the cell in between"
        )
    if len(changes):
        warn(
            f"{path}: the cell changes by more than half an edge at "
            f"{many(len(changes), 'frame')}, the first is {changes[0]}; {scheme} may mistake {one} "
            "for another image there: analyse the parts before and after separately"
        )


def unwrap_series(
    series: np.ndarray, cells: np.ndarray, gaps: np.ndarray, scheme: str
) -> np.ndarray:
    """Undo jumps across the cell, from the first frame on, also across skipped frames.

    "lattice" counts the cells n that a particle has crossed, and adds n·L with the cell of the
    current frame, as MDAnalysis's `NoJump`. "tor" adds up shortest steps (von Bülow, Bullerjahn &
    Hummer 2020, J. Chem. Phys. 153, 021101), as `nojump` does for molecules.

    Parameters
    ----------
    series : numpy.ndarray, shape (n_frames, n_particles, 3)
        Positions, Å.
    cells : numpy.ndarray, shape (n_frames, 3, 3)
        Cell vectors as rows, Å; all vectors must be periodic.
    gaps : numpy.ndarray of int64
        Rows of skipped frames.
    scheme : {"tor", "lattice"}
        Method.

    Returns
    -------
    numpy.ndarray of float64, shape (n_frames, n_particles, 3)
        Positions without jumps, Å; NaN in skipped frames.

    Examples
    --------
    >>> jumping = np.array([[[9.0, 0, 0]], [[1.0, 0, 0]]])
    >>> cells = np.array([np.eye(3) * 10, np.eye(3) * 11])
    >>> unwrap_series(jumping, cells, np.array([], int), "lattice")[:, 0, 0]
    array([ 9., 12.])
    """
    rows = np.setdiff1d(np.arange(len(series)), gaps)
    positions, cells = series[rows].astype(np.float64), cells[rows].astype(np.float64)
    if scheme == "lattice":
        crossed = np.rint(np.diff(_fractions(positions, cells), axis=0)).cumsum(axis=0)
        shifts = -_sums(crossed, cells[1:])
    else:
        rows_of_cells = _core.cells_of_vectors(np.ascontiguousarray(cells), (True, True, True))
        shifts = _sum_steps(_core.molecule_steps(positions, rows_of_cells))[1:] * STEP
        # Steps after an unknown position are unknown, too.
        unknown = np.isnan(positions).any(axis=2)
        shifts[np.logical_or.accumulate(unknown, axis=0)[1:]] = np.nan
    found = np.full(series.shape, np.nan)
    found[rows[:1]] = positions[:1]
    found[rows[1:]] = positions[1:] + shifts
    return found


def _fractions(positions: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return positions in units of the cell vectors (fractional coordinates)."""
    # Unlike a matrix product, this has the same order of summation on every machine.
    if np.any(cells[:, [0, 0, 1], [1, 2, 2]]):
        a, b, c = cells[:, None].transpose(2, 0, 1, 3)
        volumes = _along(np.cross(b, c), a)
        parts = (np.cross(b, c), np.cross(c, a), np.cross(a, b))
        return np.stack([_along(part, positions) / volumes for part in parts], axis=-1)
    (ax, bx, by), (cx, cy, cz) = (
        cells[:, [0, 1, 1], [0, 0, 1]].T[..., None],
        cells[:, 2].T[..., None],
    )
    w = positions[..., 2] / cz
    v = (positions[..., 1] - w * cy) / by
    u = (positions[..., 0] - w * cx - v * bx) / ax
    return np.stack([u, v, w], axis=-1)


def _along(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return dot products of corresponding vectors."""
    return one[..., 0] * other[..., 0] + one[..., 1] * other[..., 1] + one[..., 2] * other[..., 2]


def _sums(numbers: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return u·a + v·b + w·c for numbers (u, v, w) and the cell vectors a, b and c."""
    a, b, c = cells[:, None].transpose(2, 0, 1, 3)
    u, v, w = numbers.transpose(2, 0, 1)[..., None]
    return u * a + v * b + w * c
