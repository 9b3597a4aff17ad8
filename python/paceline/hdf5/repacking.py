"""An H5MD file written anew in another layout: the same numbers, and everything else as it was."""

import contextlib
import math
import os
import shlex
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from paceline._core import __version__
from paceline.errors import UnsupportedError, UnwritableError
from paceline.hdf5.catalogue import Element
from paceline.hdf5.compression import Compression, parse_compression
from paceline.hdf5.copies import Remake, copy_contents
from paceline.hdf5.costs import Cost, costs_of, layout_in_words
from paceline.hdf5.layout import choose_layout
from paceline.hdf5.making import new_hdf5
from paceline.hdf5.metadata import command_of_process
from paceline.hdf5.native import Array, File, Group, damaged
from paceline.hdf5.rewriting import MOST_AT_ONCE, Means, Rewriting, join_chunks
from paceline.hdf5.storage import refuse_coarse
from paceline.hdf5.stored import DEFLATE, FLETCHER32, SHUFFLE, dataset_of
from paceline.hdf5.units import factor_of
from paceline.progress import Progress

#: Elements that are written anew.
ELEMENTS = ("position", "velocity", "force")
#: Bytes of chunks that take longer to find than to read.
SMALL_CHUNK = 1024


@dataclass(frozen=True)
class Gain:
    """What became of one dataset.

    Attributes
    ----------
    name : str
        Its path in the file.
    layouts : (str, str)
        How it lay and how it lies, in words.
    costs : (list of Cost, list of Cost)
        What reading it cost and costs.
    """

    name: str
    layouts: tuple[str, str]
    costs: tuple[list[Cost], list[Cost]]


def repack(
    path: str | os.PathLike,
    output: str | os.PathLike | None = None,
    *,
    chunk: str = "auto",
    for_: str = "frames",
    align: int | None = None,
    compress: str | None = None,
    precision: float | None = None,
    overwrite: bool = False,
    n_workers: int = 1,
    progress: bool | None = None,
) -> list[Gain]:
    """Write positions, velocities and forces of an H5MD file anew in another layout.

    Everything else is copied as it is.

    Parameters
    ----------
    path : path-like
        The file.
    output : path-like, optional
        The new one; by default it takes the place of the old one, once it is whole.
    chunk, for_, align : optional
        As for `paceline.hdf5.layout.choose_layout`.
    compress : str, optional
        As for `paceline.hdf5.compression.parse_compression`; by default as it was, with gzip in
        place of any other method.
    precision : float, optional
        Å, to which positions are rounded; by default all numbers stay the same to the last bit.
    overwrite : bool
        Whether a file that is called as `output` may be replaced.
    n_workers : int
        Threads that read and compress.
    progress : bool, optional
        Whether to show how far it has come.

    Returns
    -------
    list of Gain
        Of each dataset that was written anew.

    Raises
    ------
    UnsupportedError
        It is no H5MD file, or its numbers are no floats of (frames, atoms, 3).
    UnwritableError
        A number is not finite.
    """
    refuse_coarse(precision)
    path = os.path.realpath(path)
    target = path if output is None else os.fspath(output)
    with File(path) as file:
        arrays = _found(file)
        before = [_lies(array) for array in arrays]
        works = {
            array.name: Rewriting(
                array,
                choose_layout(chunk, array.shape[1], for_=for_, align=align).within(array.shape[0]),
                _as_it_is(array) if compress is None else parse_compression(compress),
                _in_its_unit(precision, array),
            )
            for array in arrays
        }
        n_bytes = sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)
        with (
            new_hdf5(target, overwrite=overwrite or output is None, align=align) as made,
            ThreadPoolExecutor(n_workers, thread_name_prefix="paceline-repack") as pool,
            Progress(n_bytes, unit="byte", show=progress) as bar,
            _naming(path),
        ):
            if not os.path.exists(target):
                shutil.copymode(path, made.path)
            means = Means(made, pool, n_workers, bar)
            remade: dict[str, Remake] = dict.fromkeys(_series(file), join_chunks)
            remade |= {name: partial(work.make, means) for name, work in works.items()}
            copy_contents(file, made.h5, remade)
            _say_so(made.h5)
    with File(target) as file:
        after = [_lies(file.root[name]) for name in works]
    return [
        Gain(name, (old[0], new[0]), (old[1], new[1]))
        for name, old, new in zip(works, before, after, strict=True)
    ]


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except UnwritableError as error:
        raise UnwritableError(f"{path}: {error}") from None


def _found(file: File) -> list[Array]:
    """What there is to be written anew, each dataset once."""
    if file.cut_from is not None:
        raise damaged(file.path, "", f"{file.cut_from} bytes", f"{file.size}: the file was cut")
    arrays: dict[tuple[int, int], Array] = {}
    particles = file.root.group("particles")
    for group in particles.children() if particles is not None else ():
        for element in ELEMENTS:
            array = group.array(f"{element}/value") if isinstance(group, Group) else None
            if array is not None and 0 not in array.shape:
                arrays.setdefault(array.identity, array)
    if not arrays:
        raise UnsupportedError(
            f"{file.path}: no H5MD file with positions, velocities or forces: only those are "
            f"written anew; for other trajectories: paceline convert {shlex.quote(file.path)} "
            "new.h5md"
        )
    for array in arrays.values():
        if len(array.shape) != 3 or array.shape[2] != 3 or array.dtype.kind != "f":
            raise UnsupportedError(
                f"{file.path}: {array.name}: expected floats of (frames, atoms, 3), found "
                f"{array.dtype} of {array.shape}"
            )
    return list(arrays.values())


def _series(file: File) -> Iterator[str]:
    """Small numbers of each frame, steps and times above all, in chunks that hold few of them."""
    for name in ("particles", "observables"):
        top = file.root.group(name)
        for array in top.walk() if top is not None else ():
            if isinstance(array, Array) and array.chunk is not None and array.dtype.kind in "iuf":
                chunk, whole = (
                    math.prod(shape) * array.dtype.itemsize for shape in (array.chunk, array.shape)
                )
                if chunk < SMALL_CHUNK and chunk < whole <= MOST_AT_ONCE:
                    yield array.name


def _as_it_is(array: Array) -> Compression:
    """How a dataset is compressed, as near as gzip comes to it."""
    stages = {stage.number: stage.values for stage in array.filters}
    shuffle = SHUFFLE in stages
    if DEFLATE in stages:
        level = stages[DEFLATE][0]
        return Compression(shuffle, level) if level else Compression()
    compressed = [number for number in stages if number not in (SHUFFLE, FLETCHER32)]
    return Compression(shuffle, 1) if compressed else Compression()


def _in_its_unit(precision: float | None, array: Array) -> float | None:
    """A precision in Å as one of the numbers of a dataset; None where they are no positions."""
    if precision is None or not array.name.endswith("/position/value"):
        return None
    unit = array.attrs.get("unit")
    if not isinstance(unit, str):
        raise UnsupportedError(
            f"{array.file.path}: {array.name} has no unit: a precision in Å means nothing"
        )
    return precision / factor_of(unit, "length")


def _lies(array: Any) -> tuple[str, list[Cost]]:
    """How a dataset lies, and what reading it costs."""
    dataset = dataset_of(array)
    words = layout_in_words(dataset, array.shape[1])
    return words, costs_of(Element(dataset), array.shape[1])


def _say_so(h5: Any) -> None:
    """Note in the file that it was written anew, and by what, after those who did so before."""
    notes = h5.require_group("parameters/repacked")
    notes.create_dataset(
        str(len(notes) + 1), data=f"paceline {__version__}: {command_of_process()}"
    )
