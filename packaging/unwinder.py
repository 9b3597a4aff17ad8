"""Make a library of the names in libgcc_s.so.1 that unwind stacks, for the linking of a wheel.

    python packaging/unwinder.py FOLDER [aarch64-unknown-linux-gnu]

Zig has a static unwinder in place of libgcc's. But the C library and Python end threads by libgcc's
(`pthread_exit`, where the interpreter has ended), and a process that meets both in one stack dies.
The wheel is linked with what is made here, before zig's, and so with the system's libgcc_s.so.1, on
which every manylinux wheel may depend. Only names and versions of names are in it.
"""

import platform
import subprocess
import sys
from pathlib import Path

#: Name by which the linker finds it.
NAME = "paceline_unwinder"
#: What Rust's standard library calls, by the version in which libgcc_s.so.1 has it.
FUNCTIONS = {
    "GCC_3.0": (
        "DeleteException",
        "ForcedUnwind",
        "GetDataRelBase",
        "GetGR",
        "GetIP",
        "GetLanguageSpecificData",
        "GetRegionStart",
        "GetTextRelBase",
        "RaiseException",
        "Resume",
        "SetGR",
        "SetIP",
    ),
    "GCC_3.3": ("Backtrace", "FindEnclosingFunction", "GetCFA", "Resume_or_Rethrow"),
    "GCC_4.2.0": ("GetIPInfo",),
}


def main(folder: Path, target: str) -> None:
    """Write the sources and the library."""
    folder.mkdir(parents=True, exist_ok=True)
    source, versions = folder / "unwinder.c", folder / "unwinder.map"
    names = {version: [f"_Unwind_{one}" for one in some] for version, some in FUNCTIONS.items()}
    source.write_text(
        "".join(f"void {name}(void) {{}}\n" for some in names.values() for name in some)
    )
    versions.write_text(
        "".join(f"{version} {{ global: {'; '.join(some)}; }};\n" for version, some in names.items())
    )
    zig_target = f"{target.partition('-')[0]}-linux-gnu"
    command = [sys.executable, "-m", "ziglang", "cc", "-target", zig_target, "-shared", "-nostdlib"]
    command += ["-Wl,-soname,libgcc_s.so.1", f"-Wl,--version-script={versions}"]
    subprocess.run([*command, "-o", folder / f"lib{NAME}.so", source], check=True)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), *(sys.argv[2:] or [f"{platform.machine()}-unknown-linux-gnu"]))
