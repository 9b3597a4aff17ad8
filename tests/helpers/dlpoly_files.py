"""HISTORY and CONFIG files as written by DL_POLY 4, and numbers for them."""

import numpy as np

N_ATOMS, N_FRAMES = 12, 6
CELL = np.array([[18.5, 0.25, 0.0], [0.0, 17.0, -0.5], [0.125, 0.0, 16.0]])


def values(frame, n_atoms=N_ATOMS):
    """Return positions (Å), velocities (Å/ps) and forces (kJ/(mol·Å)) of a frame, (3, atoms, 3)."""
    return np.random.default_rng(frame).normal(0, [[[9]], [[3]], [[40]]], (3, n_atoms, 3))


def lines_of(frame, level, order=None, n_atoms=N_ATOMS):
    """Return the lines of the atoms in a frame."""
    arrays = values(frame, n_atoms) * np.array([1, 1, 100])[:, None, None]
    for atom in range(n_atoms) if order is None else order:
        yield f"{'C' if atom % 2 else 'Na+':8}{atom + 1:10}{12.011:12.6f}{-0.5:12.6f}{0:12.6f}"
        for x, y, z in arrays[: level + 1, atom]:
            yield f"{x:20.12G}{y:20.12G}{z:20.12G}"


def frame_of(number, level, order=None, n_atoms=N_ATOMS):
    """Return the lines of a frame in a HISTORY."""
    yield f"timestep{100 * number:10}{n_atoms:10}{level:2}{3:2}{0.0005:20.6f}{0.05 * number:20.6f}"
    yield from (f"{x:20.10f}{y:20.10f}{z:20.10f}" for x, y, z in CELL)
    yield from lines_of(number, level, order, n_atoms)


def history(level=2, n_frames=N_FRAMES, orders=None, n_atoms=N_ATOMS, claimed=None):
    """Return the lines of a HISTORY."""
    n_records = 2 + n_frames * (4 + n_atoms * (2 + level))
    counts = f"{n_frames if claimed is None else claimed:21}{n_records:21}"
    yield "made up"
    yield f"{level:10}{3:10}{n_atoms:10}{counts}"
    for number in range(n_frames):
        yield from frame_of(number, level, orders[number] if orders else None, n_atoms)


def write(path, lines, width=72, end="\n"):
    """Write lines, padded to a width (0: without padding)."""
    path.write_bytes("".join(line.ljust(width) + end for line in lines).encode())
    return str(path)


def config(level=2, claimed=N_ATOMS):
    yield "made up"
    yield f"{level:10}{3:10}{claimed:10}{300:10}{0.0005:16.7E}{0.15:16.7E}"
    yield from (f"{x:20.10f}{y:20.10f}{z:20.10f}" for x, y, z in CELL)
    yield from lines_of(3, level)
