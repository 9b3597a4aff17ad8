"""Interaction fingerprints: kinds of contacts between residues in each frame."""

from collections.abc import Mapping

import numpy as np

from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.neighbors import NeighborList
from paceline.analysis.results import Results
from paceline.analysis.table import Table, fractions_of_frames, residue_labels
from paceline.contract.run_info_and_descriptions import describe_frames
from paceline.engine.stage_over_collected_rows import allocate_results
from paceline.errors import UnsupportedError


def interaction_fingerprint(
    analyses: Mapping[str, NeighborList | HydrogenBondAnalysis],
) -> Results:
    """Find the kinds of contacts between each pair of residues in each frame.

    Two residues have a kind of contact in a frame if its analysis found at least one pair of their
    atoms, or a hydrogen bond in either direction. Contacts within a residue are ignored.

    Parameters
    ----------
    analyses : mapping of str to NeighborList or HydrogenBondAnalysis
        Analysis of each kind of contact, after a run over the same frames. `paceline.run` runs all
        of them in one pass.

    Returns
    -------
    Results
        `fingerprint`, ndarray of bool, shape (n_frames, n_columns): each column is a pair of
        residues and a kind of contact that occurs in any frame, sorted by residues, then in the
        order of `analyses`. If damaged frames were left out, the dtype is float64, and their rows
        are NaN. An array larger than 1 GiB is in a temporary file. `residues`, int64, shape
        (n_columns, 2), residue indices (`resindices`), the lower one first. `kinds`, str, shape
        (n_columns,). `fractions` of frames, float64, shape (n_columns,). `frames`, int64, and
        `times` (ps), float64. The table has a column of 0 and 1 for each contact; its figure shows
        the most frequent contacts.

    Raises
    ------
    TypeError
        There are no analyses, or analyses of another type.
    UnsupportedError
        The analyses belong to different Universes, or ran over different frames.
    paceline.errors.NotRunError
        An analysis has not been run.

    Examples
    --------
    >>> import paceline
    >>> from MDAnalysisTests.datafiles import PSF, DCD
    >>> u = paceline.Universe(PSF, DCD)
    >>> acidic = u.select_atoms("resname ASP GLU and name OE* OD*")
    >>> basic = u.select_atoms("resname ARG LYS and name NH* NZ")
    >>> kinds = {
    ...     "salt bridge": NeighborList(acidic, basic, cutoff=4.0),
    ...     "hydrogen bond": HydrogenBondAnalysis(u),
    ... }
    >>> _ = paceline.run(list(kinds.values()), stop=20)
    >>> results = interaction_fingerprint(kinds)
    >>> results.fingerprint.shape
    (20, 260)
    >>> list(results.table.columns)[2:5]
    ['MET 1–ASP 104 hydrogen bond', 'ARG 2–ASN 102 hydrogen bond', 'ARG 2–ASP 104 salt bridge']
    >>> results.fractions[:3]
    array([0.4 , 0.3 , 0.95])
    """
    if not analyses:
        raise TypeError("interaction_fingerprint: expected an analysis for each kind, found none")
    pairs = {kind: _atom_pairs(kind, analysis) for kind, analysis in analyses.items()}
    first, some = next(iter(analyses.items()))
    universe = some.atomgroup.universe
    for kind, one in analyses.items():
        if one.atomgroup.universe is not universe:
            raise UnsupportedError(f"interaction_fingerprint: {kind!r} belongs to another Universe")
        if not np.array_equal(one.frames, some.frames):
            raise UnsupportedError(
                f"interaction_fingerprint: {kind!r} ran over {describe_frames(one.frames)}, but "
                f"{first!r} over {describe_frames(some.frames)}: run all by one paceline.run"
            )
    n_residues, n_kinds = len(universe.residues), len(analyses)
    keys, rows = [], []
    for number, (kind, one) in enumerate(analyses.items()):
        ends = np.sort(universe.atoms.resindices[pairs[kind]], axis=1)
        apart = ends[:, 0] != ends[:, 1]
        keys.append(((ends[:, 0] * n_residues + ends[:, 1]) * n_kinds + number)[apart])
        rows.append(np.repeat(np.arange(len(one.frames)), np.diff(one.results.offsets))[apart])
    columns, places = np.unique(np.concatenate(keys), return_inverse=True)
    left_out = np.any([one.left_out for one in analyses.values()], axis=0)
    dtype = np.dtype(np.float64 if left_out.any() else bool)
    fingerprint = allocate_results((len(left_out), len(columns)), dtype)
    fingerprint[...] = 0
    fingerprint[np.concatenate(rows), places.reshape(-1)] = 1
    if left_out.any():
        fingerprint[left_out] = np.nan
    residues = np.column_stack(np.divmod(columns // n_kinds, n_residues))
    kinds = np.array(list(analyses), dtype=str)[columns % n_kinds]
    n_frames = int(np.count_nonzero(~left_out))
    present = fingerprint == 1 if left_out.any() else fingerprint
    counts = np.count_nonzero(present, axis=0)
    return Results(
        table=_tabulate(some, fingerprint, residues, kinds, counts, n_frames),
        provenance=_record(analyses),
        fingerprint=fingerprint,
        residues=residues,
        kinds=kinds,
        fractions=counts / (n_frames or np.nan),
        frames=some.frames,
        times=some.times,
    )


def _tabulate(
    some: NeighborList | HydrogenBondAnalysis,
    fingerprint: np.ndarray,
    residues: np.ndarray,
    kinds: np.ndarray,
    counts: np.ndarray,
    n_frames: int,
) -> Table:
    """Make a table of the contacts; its figure shows their frequencies."""
    names = residue_labels(some.atomgroup.universe.residues, np.unique(residues))
    labels = [
        f"{names[first]}–{names[second]} {kind}"
        for (first, second), kind in zip(residues.tolist(), kinds, strict=True)
    ]
    order = np.argsort(-counts, kind="stable")
    frequent = fractions_of_frames(
        "interaction", [labels[k] for k in order], {}, counts[order], n_frames
    )
    columns = {"frame": some.frames, "time (ps)": some.times}
    as_numbers = fingerprint.view(np.int8) if fingerprint.dtype == bool else fingerprint
    columns |= dict(zip(labels, as_numbers.T, strict=True))
    return Table(columns, "time (ps)", {}, "interactions", drawn=frequent)


def _record(analyses: Mapping[str, NeighborList | HydrogenBondAnalysis]) -> dict[str, object]:
    """Return the facts about the run, and the parameters of each kind of contact."""
    some = next(iter(analyses.values()))
    of_run = {key: value for key, value in some.record().items() if key not in some.parameters()}
    for kind, one in analyses.items():
        given = "; ".join(f"{key}: {value}" for key, value in one.parameters().items())
        of_run[f"kind {kind}"] = f"{type(one).__name__}; {given}"
    return {**of_run, "analysis": "interaction_fingerprint"}


def _atom_pairs(kind: str, analysis: object) -> np.ndarray:
    """Return the atom indices of each pair of an analysis: int64, shape (n_pairs, 2)."""
    if isinstance(analysis, HydrogenBondAnalysis):
        return analysis.results.hbonds[:, [1, 3]].astype(np.int64)
    if isinstance(analysis, NeighborList):
        pairs = analysis.results.pairs
        return np.column_stack([pairs["first"], pairs["second"]]).astype(np.int64)
    raise TypeError(
        f"interaction_fingerprint: {kind!r} must be a NeighborList or a HydrogenBondAnalysis, not "
        f"{type(analysis).__name__}"
    )
