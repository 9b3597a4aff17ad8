"""Meaning of ±: a 95 % interval of the mean, and cases in which none exists."""

import contextlib
import io
import warnings
from functools import partial
from pathlib import Path

import MDAnalysis
import numpy as np
from MDAnalysis.analysis import density as density_of_mdanalysis
from MDAnalysisTests.datafiles import TPR, XTC

import paceline
from benchmarks.coverage import (
    conductivity_coverage,
    dielectric_coverage,
    diffusion_coverage,
    in_memory,
    presence_coverage,
    relaxation_coverage,
)
from benchmarks.right_values.case import Found, RightValue
from paceline.analysis.battery import Battery
from paceline.analysis.density import DensityAnalysis
from paceline.analysis.groups import SelectedAtoms
from paceline.analysis.msd import EinsteinMSD
from paceline.analysis.replicas import Replicas
from paceline.analysis.uncertainty import mean_of_replicas, mean_of_series
from paceline.cli.command_line import main

#: Allowed deviation from 95 %, because there are few repetitions.
SLACK = 0.08
SIMULATED = "by definition, on simulated series whose value is known"


def share(measure: partial, _: Path) -> Found:
    """Return the fraction of intervals that contain the true value."""
    return Found(measure())


def walking_pairs(_: Path) -> Found:
    """Simulate ten pairs of bonded atoms that walk together."""
    steps = np.random.default_rng(1).normal(size=(200, 10, 3))
    universe = in_memory(np.repeat(steps.cumsum(axis=0), 2, axis=1), cell=40.0)
    universe.add_bonds([(2 * k, 2 * k + 1) for k in range(10)])
    return Found(EinsteinMSD(universe, fit_range=(None, None)).run().results.findings[DIFFUSION])


DIFFUSION = "diffusion coefficient"


def one_molecule(_: Path) -> Found:
    """Simulate a single molecule, without blocks of time."""
    steps = np.random.default_rng(2).normal(size=(200, 1, 3))
    run = EinsteinMSD(in_memory(steps.cumsum(axis=0)), fit_range=(None, None)).run()
    return Found(run.results.findings[DIFFUSION])


def finite_size(_: Path) -> Found:
    """Compute D in a cubic cell."""
    steps = np.random.default_rng(3).normal(size=(100, 4, 3))
    universe = in_memory(steps.cumsum(axis=0), cell=40.0)
    run = EinsteinMSD(universe, fit_range=(None, None)).run()
    return Found(run.results.findings["finite size"])


def cut_integral(_: Path) -> Found:
    """Simulate atoms that leave slowly, over a tenth of their mean stay."""
    rng = np.random.default_rng(4)
    there = np.cumsum(rng.random((400, 20)) < 0.02, axis=0) % 2 == 0
    positions = np.where(there[..., None], 1.0, -1.0) * np.ones((400, 20, 3))
    group = in_memory(positions).select_atoms("prop z > 0", updating=True)
    found = SelectedAtoms(group).run().time_correlation("continuous", tau_max=5)
    return Found(found.findings["continuous residence time"])


def saved_in_memory(folder: Path) -> Found:
    """Save replicas of Universes without files."""
    universe = in_memory(np.random.default_rng(5).normal(size=(20, 5, 3)))
    universe.add_TopologyAttr("masses", np.ones(5))
    replicas = Replicas({"a": [Battery({"gyration": {"select": "all"}}, universe)]}).run()
    replicas.save(folder / "saved")
    return Found((folder / "saved" / "battery.toml").read_text(encoding="utf-8").strip())


def origin_of_mrc(folder: Path) -> Found:
    """Return the origin, as GridDataFormats reads it, of a grid that begins between voxels."""
    grid = {"delta": 4.0, "gridcenter": [41.3, 40.2, 39.9], "xdim": 30, "ydim": 22, "zdim": 17}
    origins = []
    for kind, analysis in (
        (paceline.Universe, DensityAnalysis),
        (MDAnalysis.Universe, density_of_mdanalysis.DensityAnalysis),
    ):
        water = kind(TPR, XTC).select_atoms("name OW")
        results = analysis(water, **grid).run(stop=1).results
        path = folder / f"{len(origins)}.mrc"
        if kind is paceline.Universe:
            results.save(path)
        else:
            results.density.export(str(path))
        origins.append(float(density_of_mdanalysis.Density(str(path)).origin[0]))
    return Found(*origins)


def help_of_contacts(_: Path) -> Found:
    """Return the recommendation in the help of native contacts."""
    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.suppress(SystemExit),
        warnings.catch_warnings(),
    ):
        main(["contacts", "--help"])
    return Found(" ".join(out.getvalue().split()))


CASES = [
    *(
        RightValue(f"95 % interval of {name}", "", 0.95, SIMULATED, partial(share, measure), SLACK)
        for name, measure in (
            ("D, 20 molecules", partial(diffusion_coverage, 20, 100)),
            ("D, one molecule", partial(diffusion_coverage, 1, 300, (4, 40))),
            ("a dielectric constant", partial(dielectric_coverage, 100, 500)),
            ("a dipole relaxation time", partial(relaxation_coverage, 100, 300)),
            ("a conductivity", partial(conductivity_coverage, 300, 200)),
            ("a residence time", partial(presence_coverage, 100, 300, 10)),
            ("a lifetime", partial(presence_coverage, 100, 300, 10, "intermittent")),
        )
    ),
    RightValue(
        "interval of D, ten pairs of atoms that are bonded",
        "",
        "95 %, 10 molecules",
        "atoms of a molecule are not independent",
        walking_pairs,
    ),
    RightValue(
        "interval of D, one molecule",
        "",
        "no interval: one molecule",
        "nothing tells how much such a value varies",
        one_molecule,
    ),
    RightValue(
        "note on D in a periodic cell",
        "",
        "2.837297 k_B T / (6 π η L) (Yeh & Hummer 2004), with L = 40 Å",
        "J. Phys. Chem. B 108, 15873, eq. 12",
        finite_size,
    ),
    RightValue(
        "interval of two replicas with equal means",
        "",
        "no interval",
        "what they vary by is not known",
        lambda _: Found(str(mean_of_replicas([2.5, 2.5]))),
    ),
    RightValue(
        "interval of a series of one value",
        "",
        "constant in all 100 values",
        "what it varies by is not known",
        lambda _: Found(str(mean_of_series(np.full(100, 2.5)))),
    ),
    RightValue(
        "intervals of arrays of replicas, as text",
        "",
        "[1.5 2.5] ± [6.3531 6.3531] (95 % between 2 replicas)",
        "t = 12.706 times the standard error, 0.5",
        lambda _: Found(str(mean_of_replicas([[1.0, 2.0], [2.0, 3.0]]))),
    ),
    RightValue(
        "replicas of Universes without files, saved",
        "",
        "no files, so this contains only the analyses",
        "there is nothing else to repeat",
        saved_in_memory,
    ),
    RightValue(
        "residence time of a correlation that has not decayed",
        "ps",
        "up to a lag of 5 ps, where the correlation is 0.9",
        "the integral ends where the correlation is large",
        cut_integral,
    ),
    RightValue(
        "origin of a density, by its MRC file",
        "Å",
        27.3,
        "center of the first voxel, 41.3 - 32 / 2 + 4 / 2 Å: eight voxels along x",
        origin_of_mrc,
        1e-4,
    ),
    RightValue(
        "native contacts by thermal motion, in the help",
        "",
        "use --method soft_cut",
        "by hard_cut a folded protein has Q = 0.31",
        help_of_contacts,
    ),
]
