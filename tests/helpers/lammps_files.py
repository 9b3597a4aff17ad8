"""Made-up text dumps of LAMMPS."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

N_FRAMES, N_ATOMS = 5, 60
ORTHOGONAL = "pp pp pp"
TRICLINIC = "xy xz yz pp pp pp"
CONVENTIONS = ("x y z", "xs ys zs", "xu yu zu", "xsu ysu zsu")
#: Bounds of the cell, followed by tilts.
BOUNDS = np.array([[-3.25, 9.5, 1.75], [0.5, 11.25, -2.5], [-1e-3, 8.0, 0.625]])


def frame_of(
    number: int,
    columns: str = "id type x y z",
    *,
    box: str = ORTHOGONAL,
    ids: Sequence[int] = range(1, N_ATOMS + 1),
    before: str = "",
) -> str:
    """Return the text of one frame, with atoms in any order."""
    random = np.random.default_rng(number)
    rows = BOUNDS + 0.125 * number
    lines = [f"{before}ITEM: TIMESTEP", f"{100 * number}", "ITEM: NUMBER OF ATOMS", f"{len(ids)}"]
    lines.append(f"ITEM: BOX BOUNDS {box}")
    width = 3 if box == TRICLINIC else 2
    lines += [" ".join(f"{value:.16e}" for value in row[:width]) for row in rows]
    lines.append(f"ITEM: ATOMS {columns}")
    for at in random.permutation(len(ids)):
        words = {"id": f"{ids[at]}", "type": "1", "element": "C"}
        numbers = np.random.default_rng([number, at]).normal(size=len(columns.split()))
        lines.append(
            " ".join(
                words.get(name, f"{value:.6g}")
                for name, value in zip(columns.split(), numbers, strict=True)
            )
        )
    return "".join(f"{line} \n" if k > 8 else f"{line}\n" for k, line in enumerate(lines))


def dump(columns: str = "id type x y z", n_frames: int = N_FRAMES, **options) -> str:
    """Return the text of a file."""
    return "".join(frame_of(number, columns, **options) for number in range(n_frames))


def write(path: Path, text: str) -> Path:
    """Write a file with the line ends of LAMMPS on any machine."""
    path.write_bytes(text.encode())
    return path
