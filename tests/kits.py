"""Run the main analysis of MDAKits with MDAnalysis alone, and with paceline registered.

    pip install waterdynamics membrane-curvature transport-analysis lipyphilic pathsimanalysis \
        mdaencore mdakit-sasa solvation-analysis mdahole2 prolif
    python tests/kits.py [KIT …]

The script prints a line for each kit: whether results are equal, how paceline computed them, and
the seconds of both ways. The times exclude a first run, which imports modules. A kit that is not
installed is skipped. The exit status is 1 if a result differs. Each kit runs in a separate process.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

#: Head groups of lipids in the membrane of MDAnalysisTests.
HEADS = "resname POPE POPG and name P"


def opened(*names: str, **options: Any) -> Any:
    """Open copies of files of MDAnalysisTests, in the working folder of this process."""
    import MDAnalysis
    from MDAnalysisTests import datafiles

    paths = [getattr(datafiles, name, name) for name in names]
    return MDAnalysis.Universe(*(shutil.copy(path, ".") for path in paths), **options)


def waterdynamics() -> Any:
    """Survival, orientation, angles and displacement of water."""
    from waterdynamics import waterdynamics as kit

    universe = opened("waterPSF", "waterDCD")
    select = "byres name OH2"
    survival = kit.SurvivalProbability(universe, select)
    survival.run(tau_max=5)
    found = [survival.tau_timeseries, survival.sp_timeseries]
    for one in (
        kit.WaterOrientationalRelaxation(universe, select, 0, 8, 4),
        kit.MeanSquareDisplacement(universe, select, 0, 8, 4),
    ):
        one.run()
        found.append(one.timeseries)
    return found


def membrane_curvature() -> Any:
    """Curvature of the heads of lipids."""
    from membrane_curvature.base import MembraneCurvature

    universe = opened("GRO_MEMPROT", "XTC_MEMPROT")
    return MembraneCurvature(universe, HEADS, n_x_bins=8, n_y_bins=8, wrap=True).run().results


def transport_analysis() -> Any:
    """Correlation of velocities, and Helfand's viscosity."""
    from transport_analysis.velocityautocorr import VelocityAutocorr
    from transport_analysis.viscosity import ViscosityHelfand

    water = opened("PRM_NCBOX", "TRJ_NCBOX").select_atoms("name O")
    return VelocityAutocorr(water).run().results, ViscosityHelfand(water).run().results


def lipyphilic() -> Any:
    """Leaflets, and quantities computed from them."""
    from lipyphilic.analysis.area_per_lipid import AreaPerLipid
    from lipyphilic.analysis.neighbours import Neighbours
    from lipyphilic.analysis.z_positions import ZPositions
    from lipyphilic.leaflets.assign_leaflets import AssignLeaflets

    universe = opened("GRO_MEMPROT", "XTC_MEMPROT")
    universe.trajectory.add_transformations(_upright)
    leaflets = AssignLeaflets(universe, HEADS).run().leaflets
    areas = AreaPerLipid(universe, HEADS, leaflets).run().areas
    heights = ZPositions(universe, HEADS, HEADS, n_bins=2).run().z_positions
    neighbours = Neighbours(universe, HEADS, cutoff=12.0).run().neighbours
    return leaflets, areas, heights, [one.toarray() for one in np.ravel(neighbours)]


def _upright(ts: Any) -> Any:
    """Set the angles of the cell to 90°, as the kit requires."""
    ts.dimensions = [110.0, 100.0, ts.dimensions[2], 90.0, 90.0, 90.0]
    return ts


def pathsimanalysis() -> Any:
    """Distances between paths."""
    from pathsimanalysis.psa import PSAnalysis

    paths = [opened("PSF", "DCD"), opened("PSF", "DCD2")]
    compared = PSAnalysis(paths, path_select="name CA", targetdir="psa")
    compared.generate_paths(align=True, save=False)
    compared.run(metric="discrete_frechet")
    return compared.get_pairwise_distances()


def mdaencore() -> Any:
    """Similarity of ensembles."""
    import mdaencore as kit

    ensembles = [opened("PSF", "DCD"), opened("PSF", "DCD2")]
    return kit.hes(ensembles, select="name CA")[0]


def mdakit_sasa() -> Any:
    """Surface of a protein."""
    from mdakit_sasa.analysis.sasaanalysis import SASAAnalysis

    universe = opened("PSF", "DCD")
    universe.guess_TopologyAttrs(to_guess=["elements"])
    return SASAAnalysis(universe, select="resid 1-20").run(step=10).results


def solvation_analysis() -> Any:
    """Water about ions."""
    from solvation_analysis.solute import Solute

    universe = opened("TPR_xvf", "TRR_xvf")
    ions, water = universe.select_atoms("resname CL"), universe.select_atoms("name OW")
    solute = Solute.from_atoms(ions, {"water": water}, radii={"water": 3.6})
    solute.run()
    return solute.solvation_data.reset_index().select_dtypes("number").to_numpy()


def mdahole2() -> Any:
    """Radius of a pore. The program hole (github.com/osmart/hole2) must be on PATH."""
    from mdahole2.analysis import HoleAnalysis

    universe = opened("MULTIPDB_HOLE")
    universe.atoms.write("pore.xtc", frames="all")
    with HoleAnalysis(universe.load_new("pore.xtc")) as pore:
        pore.run(random_seed=31415, stop=3)
        return [np.array(pore.results.profiles[k].tolist()) for k in sorted(pore.results.profiles)]


def prolif(n_jobs: int = 1) -> Any:
    """Contacts of a ligand and a protein, in enough frames to keep two processes busy."""
    import prolif as kit

    universe = opened(str(kit.datafiles.TOP), str(kit.datafiles.TRAJ))
    ligand = universe.select_atoms("resname LIG")
    pocket = universe.select_atoms("protein and byres around 6.0 group ligand", ligand=ligand)
    fingerprint = kit.Fingerprint()
    fingerprint.run(universe.trajectory[:160], ligand, pocket, n_jobs=n_jobs, progress=False)
    frame = fingerprint.to_dataframe()
    return [list(map(str, frame.columns)), frame.to_numpy(), frame.index.to_numpy()]


def prolif_2() -> Any:
    """Contacts, computed with two processes of the kit itself."""
    return prolif(2)


#: Functions, and the packages that they require.
KITS: dict[str, tuple[Callable[[], Any], str]] = {
    "waterdynamics": (waterdynamics, "waterdynamics"),
    "membrane_curvature": (membrane_curvature, "membrane-curvature"),
    "transport_analysis": (transport_analysis, "transport-analysis"),
    "lipyphilic": (lipyphilic, "lipyphilic"),
    "pathsimanalysis": (pathsimanalysis, "pathsimanalysis"),
    "mdaencore": (mdaencore, "mdaencore"),
    "mdakit_sasa": (mdakit_sasa, "mdakit-sasa"),
    "solvation_analysis": (solvation_analysis, "solvation-analysis"),
    "mdahole2": (mdahole2, "mdahole2"),
    "prolif": (prolif, "prolif"),
    "prolif_2": (prolif_2, "prolif"),
}

#: Further packages that a kit requires, if only the kit itself is installed.
NEEDED = {"prolif": "rdkit", "prolif_2": "rdkit"}


def largest_difference(found: Any, expected: Any) -> float:
    """Return the largest difference of two results, relative to each array's largest number."""
    if isinstance(expected, Mapping):
        assert found.keys() == expected.keys()
        return max((largest_difference(found[key], expected[key]) for key in expected), default=0.0)
    if isinstance(expected, list | tuple) and not np.isscalar(expected):
        assert len(found) == len(expected)
        pairs = zip(found, expected, strict=True)
        return max((largest_difference(*pair) for pair in pairs), default=0.0)
    if isinstance(expected, np.ndarray | float) and np.asarray(expected).dtype.kind == "f":
        found, expected = np.asarray(found), np.asarray(expected)
        assert found.shape == expected.shape
        assert np.array_equal(np.isfinite(found), np.isfinite(expected))
        whole = np.isfinite(expected)
        scale = np.abs(expected[whole]).max(initial=0.0) or 1.0
        return float(np.abs(found[whole] - expected[whole]).max(initial=0.0) / scale)
    if isinstance(expected, np.ndarray | int | str | bool | np.generic):
        return 0.0 if np.array_equal(found, expected) else float("inf")
    return 0.0  # not numbers: an AtomGroup, for example


def compare(name: str) -> None:
    """Compute both ways in this process, and print a row of the table."""
    import paceline
    from paceline.backends import processes

    warnings.simplefilter("ignore")
    # Each analysis that can be split continues in processes immediately.
    processes.SAMPLE = processes.WORTH = 0.0
    function, package = KITS[name]
    seconds, results = [], []
    function()  # imports the required modules
    for registered in (False, True):
        begun = time.perf_counter()
        if registered:
            with paceline.register(n_workers=2) as registration:
                results.append(function())
        else:
            results.append(function())
        seconds.append(time.perf_counter() - begun)
    difference = largest_difference(results[1], results[0])
    how = sorted({f"{kind} {how}" for kind, how in registration.runs}) or ["its own loop"]
    equal = "equal" if difference == 0 else f"{difference:.0e}"
    state = equal if difference < 1e-6 else f"differs by {difference:.1e}"
    times = "\t".join(f"{one:.1f}" for one in seconds)
    print(name, version(package), state, times, "; ".join(how), sep="\t")
    sys.exit(state.startswith("differs"))


def main() -> int:
    """Run each kit in a separate process and folder."""
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kits", nargs="*", metavar="KIT", help=", ".join(KITS))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        compare(given.kits[0])
    status = 0
    print("kit", "version", "results", "MDAnalysis, s", "paceline, s", "how", sep="\t")
    for name in given.kits or KITS:
        try:
            version(KITS[name][1])
            version(NEEDED.get(name, KITS[name][1]))
        except PackageNotFoundError:
            print(name, "", "not installed", sep="\t")
            continue
        if name == "mdahole2" and shutil.which("hole") is None:
            print(name, version(name), "the program hole is not installed", sep="\t")
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-W", "ignore", os.path.abspath(__file__), "--one", name]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        print(next((line for line in lines if line.startswith(f"{name}\t")), f"{name}\t\tfailed"))
        if done.returncode:
            print(done.stderr[-2000:], file=sys.stderr)
        status |= bool(done.returncode)
    return status


if __name__ == "__main__":
    sys.exit(main())
