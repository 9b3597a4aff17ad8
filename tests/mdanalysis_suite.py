"""Run tests that MDAnalysis publishes while paceline is registered; compare with known failures.

    python tests/mdanalysis_suite.py [MODULE …]

MODULE are modules of MDAnalysisTests, as "coordinates/test_xdr"; by default those below. It prints
each failure that has no reason in the list, and each reason that nothing needs any more; the exit
status is 1 if there is one. pytest loads this file as a plugin, too.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from xml.etree import ElementTree

#: Modules on the readers that ours takes the place of.
MODULES = [
    f"coordinates/test_{name}" for name in ("xdr", "dcd", "netcdf", "h5md", "chainreader", "dlpoly")
]

PRIVATE = "looks at private attributes of MDAnalysis's reader (_file, _xdr, _mmap, trjfile …)"
WARNING = "wants a warning of MDAnalysis's reader about what is no error in ours"
OFFSETS = "is about the offsets that MDAnalysis saves; paceline has frame indexes"
CHAINS = "wants refusals or warnings of chains that ours allows (docs/chains.md)"
#: Failures that are known, as patterns of module::class::test, and their reasons.
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
    "test_netcdf::TestNCDFReader*::test_read_on_closed": "a closed reader of ours reads on",
    "test_netcdf::TestNCDFReaderExceptionsWarnings::*warn*": WARNING,
    "test_netcdf::TestNCDFReader4::test_warn_user_no_time_information": WARNING,
    "test_netcdf::TestNCDFReader4::test_chain_times": "times that a chain counts go on",
    "test_h5md::TestH5PYNotInstalled::test_reader_no_h5py": "takes h5py away from MDAnalysis alone",
    "test_h5md::TestH5MDWriterWithRealTrajectory::test_write_contiguous2": PRIVATE,
    "test_h5md::*::test_no_groups": "wants another kind of error; ours is a MissingDataError",
    "test_h5md::*::test_read_h5md_malformed": "wants a ValueError for a file that ours can read",
    "test_chainreader::TestChainReaderContinuous::*": CHAINS,
}


def pytest_configure() -> None:
    """Register, in the process that runs the tests."""
    import paceline

    paceline.register()


def run(modules: list[str]) -> tuple[list[str], int]:
    """Run modules; the tests that failed, as module::class::test, and the number of all."""
    import MDAnalysisTests

    folder = Path(MDAnalysisTests.__file__).parent
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        files = [str(folder / f"{module}.py") for module in modules]
        options = ["-p", "no:cacheprovider", "-p", Path(__file__).stem]
        path = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])
        subprocess.run(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "pytest",
                *options,
                f"--junitxml={report}",
                *files,
            ],
            cwd=scratch,
            env={**os.environ, "PYTHONPATH": path},
            stdout=sys.stderr,
            check=False,
        )
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None]
    return [_name(case) for case in failed], len(cases)


def _name(case: ElementTree.Element) -> str:
    """Name a test without its parameters."""
    places = case.get("classname", "").split(".")
    module = next(k for k, place in enumerate(places) if place.startswith("test_"))
    return "::".join([*places[module:], case.get("name", "").partition("[")[0]])


def main() -> int:
    """Run the tests, and print what the list of known failures does not say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=MODULES, metavar="MODULE")
    modules = parser.parse_args().modules
    failed, n_tests = run(modules)
    reasons = {
        name: next((KNOWN[known] for known in KNOWN if fnmatch(name, known)), None)
        for name in failed
    }
    for reason, n in Counter(reasons[name] for name in failed if reasons[name]).most_common():
        print(f"{n}\tknown\t{reason}")
    unknown = sorted(name for name, reason in reasons.items() if reason is None)
    for name in unknown:
        print(f"{failed.count(name)}\tunknown\t{name}")
    stale = []
    if modules == MODULES:
        stale = [known for known in KNOWN if not any(fnmatch(name, known) for name in failed)]
        print(*(f"0\tstale\t{known}" for known in stale), sep="\n", end="\n" if stale else "")
    print(f"{n_tests - len(failed)} of {n_tests} passed or were skipped")
    return bool(unknown or stale)


if __name__ == "__main__":
    sys.exit(main())
