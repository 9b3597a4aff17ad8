"""Run the test suite of MDAnalysis with paceline registered, and compare with known failures.

    python tests/mdanalysis_suite.py [MODULE …]

MODULE are modules or folders of MDAnalysisTests, such as "coordinates/test_xdr" or "core"; the
defaults are listed below. A test that fails is repeated without paceline. If it fails again, it
does not count. The script prints failures without a known reason, reasons that no longer occur, and
a table. The exit status is 1 if there are any such failures or reasons. pytest also loads this file
as a plugin.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

#: Folders, and modules about the readers that paceline replaces.
MODULES = [
    *(f"coordinates/test_{name}" for name in ("xdr", "dcd", "netcdf", "h5md", "chainreader")),
    *("coordinates/test_dlpoly", "coordinates/test_copying"),
    *("core", "analysis", "transformations", "parallelism", "auxiliary", "utils"),
]

PRIVATE = "looks at private attributes of MDAnalysis's reader (_file, _xdr, _mmap, trjfile …)"
WARNING = "wants a warning of MDAnalysis's reader about what is no error in ours"
OFFSETS = "is about the offsets that MDAnalysis saves; paceline has frame indexes"
CHAINS = "wants refusals or warnings of chains that ours allows (docs/chains.md)"
CLOSED = "wants an error of a closed reader; paceline's opens the file again"
UNITS = "wants an error for units of a NetCDF file that paceline converts"
READABLE = "wants an error for a file that paceline can read"
#: Known failures, as patterns of module::class::test, with their reasons.
KNOWN = {
    "*_offsets::*": OFFSETS,
    "test_xdr::Test*Reader::test_rewind_xdrtrj": PRIVATE,
    "test_dcd::*test_write_istart": PRIVATE,
    "test_dcd::*test_reader_set_dt": PRIVATE,
    "test_dcd::*test_ts_time": PRIVATE,
    "test_dcd::*test_dcd_writer_angle_cosines": PRIVATE,
    "test_dcd::TestDCDReader::test_empty_dcd": "wants an OSError; ours is a DamagedFileError",
    "test_netcdf::*ScaleFactors::test_write_read_*": PRIVATE,
    "test_netcdf::TestNCDFWriter*::test_OtherWriter": PRIVATE,
    "test_netcdf::TestNCDFWriter*::test_write_trajectory_net*": PRIVATE,
    "test_netcdf::TestNCDFReader*::test_mmap_kwarg": PRIVATE,
    "test_netcdf::TestNCDFReader*::test_metadata": PRIVATE,
    "test_netcdf::TestNCDFReader*::test_read_on_closed": CLOSED,
    "test_netcdf::TestNCDFReaderExceptionsWarnings::*warn*": WARNING,
    "test_netcdf::TestNCDFReaderExceptionsWarnings::test_ioerror": CLOSED,
    "test_netcdf::TestNCDFReaderExceptionsWarnings::test_notimplemented_errors": UNITS,
    "test_netcdf::TestNCDFReaderExceptionsWarnings::test_type_errors": READABLE,
    "test_netcdf::TestNCDFReaderExceptionsWarnings::test_value_errors": READABLE,
    "test_netcdf::TestNCDFReader4::test_warn_user_no_time_information": WARNING,
    "test_netcdf::TestNCDFReader4::test_chain_times": "times that a chain counts go on",
    "test_h5md::TestH5PYNotInstalled::test_reader_no_h5py": "takes h5py away from MDAnalysis alone",
    "test_h5md::TestH5MDWriterWithRealTrajectory::test_write_contiguous2": PRIVATE,
    "test_h5md::*::test_open_with_driver": PRIVATE,
    "test_h5md::*::test_wrong_driver": "wants the words of MDAnalysis's message",
    "test_multiprocessing::test_creating_multiple_universe_without_offset": PRIVATE,
    "test_h5md::*::test_no_groups": "wants another kind of error; ours is a MissingDataError",
    "test_h5md::*::test_read_h5md_malformed": READABLE,
    "test_h5md::*::test_unknown_unit": "ours leaves out such velocities and forces, with a warning",
    "test_chainreader::TestChainReaderContinuous::*": CHAINS,
    "test_msd::test_notidynamics": "wants an ImportError; ours needs no tidynamics",
}


def pytest_configure() -> None:
    """Register paceline in the processes that run the tests."""
    import paceline

    paceline.register()


class Outcome(NamedTuple):
    """Tests of a module or folder: failures as module::class::test."""

    n_tests: int
    n_skipped: int
    failed: list[str]
    seconds: float


def run(module: str, options: Sequence[str]) -> Outcome:
    """Run a module or folder of MDAnalysisTests."""
    import MDAnalysisTests

    folder = Path(MDAnalysisTests.__file__).parent
    path = folder / module if (folder / module).is_dir() else folder / f"{module}.py"
    here = Path(__file__).parent
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        command = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        # Options of this project must not apply, even if MDAnalysisTests is in its environment.
        command += ["-n", str(os.cpu_count()), "-c", os.devnull, f"--rootdir={folder}"]
        places = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
        subprocess.run(
            [*command, *options, f"--junitxml={report}", str(path)],
            cwd=scratch,
            env={**os.environ, "PYTHONPATH": places},
            stdout=sys.stderr,
            check=False,
        )
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [
        _name(case)
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]
    n_skipped = sum(case.find("skipped") is not None for case in cases)
    return Outcome(len(cases), n_skipped, failed, time.monotonic() - begun)


def _name(case: ElementTree.Element) -> str:
    """Name a test without its parameters."""
    places = case.get("classname", "").split(".")
    module = next(k for k, place in enumerate(places) if place.startswith("test_"))
    return "::".join([*places[module:], case.get("name", "").partition("[")[0]])


def reason_of(name: str) -> str | None:
    """Return why a test fails, if the reason is known."""
    return next((KNOWN[known] for known in KNOWN if fnmatch(name, known)), None)


def main() -> int:
    """Run the tests, and print the differences from the list of known failures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=MODULES, metavar="MODULE")
    modules = parser.parse_args().modules
    plugin = ["-p", Path(__file__).stem]
    reasons: Counter[str] = Counter()
    rows, unknown = [], []
    for module in modules:
        found = run(module, plugin)
        open_ = [name for name in found.failed if reason_of(name) is None]
        alone = set()
        if open_:
            wanted = " or ".join(sorted({name.rpartition("::")[2] for name in open_}))
            alone = set(run(module, ["-k", wanted]).failed)
        unknown += [name for name in open_ if name not in alone]
        known = [name for name in found.failed if reason_of(name) is not None]
        reasons.update(reason_of(name) for name in known)
        n_alone = sum(name in alone for name in open_)
        n_passed = found.n_tests - found.n_skipped - len(found.failed)
        rows.append((module, n_passed, found.n_skipped, len(known), n_alone, found.seconds, found))
    for reason, n in reasons.most_common():
        print(f"{n}\tknown\t{reason}")
    for name in sorted(set(unknown)):
        print(f"{unknown.count(name)}\tunknown\t{name}")
    failed = [name for *_, found in rows for name in found.failed]
    stale = [known for known in KNOWN if not any(fnmatch(name, known) for name in failed)]
    stale = stale if modules == MODULES else []
    print(*(f"0\tstale\t{known}" for known in stale), sep="\n", end="\n" if stale else "")
    print("tests of", "passed", "skipped", "known", "fail without paceline too", "s", sep="\t")
    for module, *counts, seconds, _ in rows:
        print(module, *counts, f"{seconds:.0f}", sep="\t")
    totals = [sum(column) for column in zip(*(row[1:6] for row in rows), strict=True)]
    print("all", *totals[:4], f"{totals[4]:.0f}", sep="\t")
    return bool(unknown or stale)


if __name__ == "__main__":
    sys.exit(main())
