"""Test a wheel as a user has it: installed alone, without Rust, a compiler, or these sources.

    python packaging/test_wheel.py dist/paceline-*.whl

Checks what each wheel holds, and installs the one for this machine into a fresh environment outside
of the checkout, from wheels alone, all fetched before; makes a figure, runs the self-test and the
demonstration. Raises in threads many times, at frames of several formats: the process must end by
itself, with the error. Prints the seconds from the wheel to the figure by the README's commands,
and by uv's where uv is on PATH: wall time and processor time, which differ on a busy machine.
Prints the processor time of an import and of `--help`. pip must refuse the wheel for another
platform and for an older Python. Data are those of MDAnalysisTests.
"""

import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Bytes that a wheel may have.
LARGEST = 12e6
#: Seconds of processor time of an import and of `paceline --help`, at most; times to start each.
IMPORT, HELP, STARTS = 0.05, 0.12, 15
#: Seconds in which Python itself starts on the machine that these are meant for.
START = 0.012
#: The README's commands that install a wheel, and what they name beside it.
INSTALL = {"pip": ("pip", "install", "--no-compile"), "uv": ("uv", "pip", "install")}
FIGURES = "matplotlib"
#: Processes in which a function raises; formats; and the script.
ERRORS, SUFFIXES = 50, (".dcd", ".xtc", ".trr", ".nc", ".h5md")
RAISES = """
import sys, paceline
u = paceline.Universe("adk.psf", [sys.argv[1]] * 40)
def bug(block):
    return block.position
paceline.TimeSeries(bug, u.atoms).run(n_workers=4)
"""
#: Files that it must hold, as patterns.
WANTED = (
    r"paceline/py\.typed",
    r"paceline/_core\.pyi",
    r"paceline/_core\.(abi3\.so|pyd)",
    r"paceline/selftest\.py",
    *(rf"paceline/performance/uplot/{name}" for name in ("LICENSE", r"uPlot\.iife\.min\.js")),
    r"paceline-[\d.]+\.dist-info/licenses/LICENSE",
    r"paceline-[\d.]+\.dist-info/licenses/THIRDPARTY\.md",
)
#: Its module on Linux.
MODULE = "paceline/_core.abi3.so"
#: Variables through which a fresh environment would find another one, or Rust.
HIDDEN = ("PYTHON", "CARGO", "RUST", "VIRTUAL_ENV", "CONDA", "CC", "CFLAGS", "LD_")


def main(wheels: list[Path]) -> None:
    """Check all wheels, and use the one for this machine."""
    for wheel in wheels:
        check_content(wheel)
    machine = platform.machine().lower()
    fitting = [wheel for wheel in wheels if wheel.stem.endswith((f"_{machine}", "_universal2"))]
    if len(fitting) != 1:
        raise SystemExit(f"{len(fitting)} wheels are for {machine}, expected one: build it anew")
    with tempfile.TemporaryDirectory(prefix="paceline-wheel-") as folder:
        wheel, folder = fitting[0].resolve(), Path(folder)
        packages = fetch(wheel, folder / "packages")
        if shutil.which("uv"):
            Environment(folder / "of-uv", packages).make_figure(wheel, "uv")
        environment = Environment(folder / "of-pip", packages)
        environment.make_figure(wheel, "pip")
        environment.test(wheel)


def check_content(wheel: Path) -> None:
    """Check size, name and files of a wheel."""
    size = wheel.stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{wheel} has {size / 1e6:.1f} MB, expected {LARGEST / 1e6:.0f} at most")
    if "-abi3-" not in wheel.name:
        raise SystemExit(f"{wheel} is for one version of Python, expected abi3")
    if "-linux_" in wheel.name:
        raise SystemExit(f"{wheel} is for this Linux alone, expected manylinux")
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    missing = [one for one in WANTED if not any(re.fullmatch(one, name) for name in names)]
    if missing:
        raise SystemExit(f"{wheel} lacks {', '.join(missing)}")
    others = {name.partition("/")[0] for name in names} - {"paceline"}
    if any(not name.startswith("paceline-") for name in others):
        raise SystemExit(f"{wheel} also installs {', '.join(sorted(others))}")
    if "-manylinux" in wheel.name and b"\0libgcc_s.so.1\0" not in archive.read(MODULE):
        raise SystemExit(f"{wheel} has an unwinder of its own: a process that ends may die of it")
    print(f"{wheel.name}: {size / 1e6:.1f} MB, {len(names)} files")


def fetch(wheel: Path, folder: Path) -> Path:
    """Get all that the demonstration needs as wheels, as a warm cache has them."""
    # What has to be compiled fails; of the tests' data alone there are only sources.
    only = ("--only-binary=:all:", "--no-binary=MDAnalysisTests", "--quiet")
    command = [sys.executable, "-m", "pip", "wheel", *only, "-w", folder, f"{wheel}[demo]"]
    subprocess.run(command, check=True)
    return folder


def processor_time() -> float:
    """Seconds that the programs which this process started have computed; 0 on Windows."""
    if os.name == "nt":
        return 0.0
    import resource

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Environment:
    """Fresh environment of Python in a folder, with a PATH of its own programs alone."""

    def __init__(self, folder: Path, packages: Path):
        self.folder, self.packages = folder, packages
        self.found = ("--no-index", f"--find-links={packages}", "--only-binary=:all:")
        self.programs = folder / "environment" / ("Scripts" if os.name == "nt" else "bin")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(HIDDEN)}
        if os.name == "posix":
            # Windows needs its own folders on PATH.
            kept["PATH"] = str(self.programs)
        self.variables = kept | {
            "MPLBACKEND": "agg",
            "UV_CACHE_DIR": str(folder / "uv"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }
        folder.mkdir()

    def run(self, program: str | Path, *arguments: object) -> None:
        """Run a program, by default of the environment, in the folder."""
        command = [str(self.programs / program), *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, env=self.variables)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}")

    def make_figure(self, wheel: Path, installer: str) -> None:
        """Do as a user does, from the wheel to a figure, and print how long that takes."""
        folder, found = self.programs.parent, ("--quiet", *self.found, wheel, FIGURES)
        if installer == "uv":
            uv, install = shutil.which("uv"), INSTALL["uv"][1:]
            commands = [
                (uv, "venv", "--quiet", f"--python={sys.executable}", folder),
                (uv, *install, f"--python={folder}", *found),
            ]
        else:
            commands = [
                (sys.executable, "-m", "venv", folder),
                ("python", "-m", *INSTALL["pip"], *found),
            ]
        figure = ("--select", "name CA", "-o", "rmsd.csv", "--plot", "rmsd.png")
        adk = self.write_data()
        used, seconds = processor_time(), []
        for command in (*commands, (self.programs / "paceline", "rmsd", *adk, *figure)):
            begun = time.perf_counter()
            self.run(*command)
            seconds.append(time.perf_counter() - begun)
        made, installed, first = seconds
        print(
            f"from the wheel to a figure with {installer}: {sum(seconds):.1f} s, of which the "
            f"environment {made:.1f} s, packages {installed:.1f} s and the first command "
            f"{first:.1f} s; processor time {processor_time() - used:.1f} s",
            flush=True,
        )

    def test(self, wheel: Path) -> None:
        """Use what was installed, and install the rest."""
        self.check_imported()
        self.check_refused(wheel)
        self.check_starts()
        self.check_selftest()
        self.run("python", "-m", "pip", "install", "--quiet", *self.found, f"{wheel}[demo]")
        demo = self.folder / "demo.py"
        demo.write_text((ROOT / "examples" / "demo.py").read_text("utf-8"), encoding="utf-8")
        self.run("python", demo, "demo-output")
        self.check_errors()

    def check_selftest(self) -> None:
        """Run the self-test; no thread of loky may print a traceback."""
        command = [str(self.programs / "python"), "-m", "paceline.selftest"]
        done = subprocess.run(
            command, cwd=self.folder, env=self.variables, capture_output=True, text=True
        )
        print(done.stdout, flush=True)
        if done.returncode or "Traceback" in done.stderr:
            raise SystemExit(f"the self-test ended with status {done.returncode}: {done.stderr}")

    def write_data(self) -> list[str]:
        """Get a topology and a trajectory of MDAnalysisTests."""
        (path,) = self.packages.glob("mdanalysistests-*.whl")
        names = ["adk.psf", "adk_dims.dcd"]
        with zipfile.ZipFile(path) as archive:
            for name in names:
                data = archive.read(f"MDAnalysisTests/data/{name}")
                (self.folder / name).write_bytes(data)
        return names

    def check_imported(self) -> None:
        """Check that the installed package is used, and neither Rust nor a compiler found."""
        check = (
            "import shutil, sys, paceline; "
            "found = [name for name in ('cargo', 'rustc', 'cc') if shutil.which(name)]; "
            f"sys.exit({os.name == 'posix'} and found and f'on PATH: {{found}}' or "
            f"(not paceline.__file__.startswith({str(self.folder.resolve())!r})) "
            "and f'imported {paceline.__file__}')"
        )
        self.run("python", "-c", check)

    def check_refused(self, wheel: Path) -> None:
        """Check that pip refuses the wheel for another platform and for an older Python."""
        for option in (("--platform", "win_arm64"), ("--python-version", "3.10")):
            target = ("--target", self.folder / "refused", "--only-binary=:all:", "--no-deps")
            command = [self.programs / "python", "-m", "pip", "install", *target, *option, wheel]
            done = subprocess.run(command, env=self.variables, capture_output=True, text=True)
            if (
                done.returncode == 0
                or "is not a supported wheel on this platform" not in done.stderr
            ):
                raise SystemExit(f"pip {' '.join(option)} did not refuse the wheel: {done.stderr}")

    def check_errors(self) -> None:
        """Check that processes whose functions raise in threads end by themselves."""
        for suffix in SUFFIXES[1:]:
            self.run("paceline", "convert", "-s", "adk.psf", "adk_dims.dcd", f"adk_dims{suffix}")
        for k in range(ERRORS):
            words = self.programs / "python", "-c", RAISES, f"adk_dims{SUFFIXES[k % len(SUFFIXES)]}"
            done = subprocess.run(
                words, cwd=self.folder, env=self.variables, capture_output=True, text=True
            )
            if done.returncode != 1 or "AnalysisError: TimeSeries of bug" not in done.stderr:
                raise SystemExit(
                    f"an error in a thread ended a process with status {done.returncode}, expected "
                    f"1: {done.stderr[-500:]}"
                )
        print(f"{ERRORS} processes ended by themselves after an error in a thread", flush=True)

    def check_starts(self) -> None:
        """Time an import and `--help`, once what they load is compiled."""
        bare = self.time_start("python", "-c", "pass")
        imported = self.time_start("python", "-c", "import paceline") - bare
        helped = self.time_start("paceline", "--help")
        print(
            f"import paceline: {1e3 * imported:.0f} ms beyond the {1e3 * bare:.0f} ms of Python; "
            f"paceline --help: {1e3 * helped:.0f} ms; processor time, medians of {STARTS}",
            flush=True,
        )
        slowness = max(1.0, bare / START)
        if imported > IMPORT * slowness or helped > HELP * slowness:
            raise SystemExit(
                f"expected at most {IMPORT} and {HELP} s where Python starts in {START} s"
            )

    def time_start(self, program: str, *arguments: str) -> float:
        """Measure the seconds of processor time that a command takes, without the first time."""
        taken = []
        for _ in range(STARTS + 1):
            used = processor_time()
            command = [self.programs / program, *arguments]
            subprocess.run(
                command, cwd=self.folder, env=self.variables, stdout=subprocess.DEVNULL, check=True
            )
            taken.append(processor_time() - used)
        return statistics.median(taken[1:])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main([Path(name) for name in sys.argv[1:]])
