"""Tests of the core's registry of formats, and of its parsers of headers that Python continues."""

import os

import MDAnalysis
import numpy as np
import pytest
from MDAnalysisTests.datafiles import DCD, NCDF

from paceline import _core
from paceline.errors import DamagedFileError


def test_formats_tell_what_they_hold():
    formats = {format.name: format for format in _core.formats()}
    text = ["HISTORY", "CONFIG", "LAMMPSDUMP"]
    assert list(formats) == ["XTC", "TRR", "DCD", "NetCDF", *text]
    extensions = [extension for format in formats.values() for extension in format.extensions]
    assert len(set(extensions)) == len(extensions)
    assert {name for name, format in formats.items() if format.precision} == {"XTC"}
    assert {name for name, format in formats.items() if format.is_text} == set(text)
    for format in formats.values():
        # Fields that are written can also be read.
        assert format.writes & ~format.reads == 0
        assert not (format.equal_frames and format.mixed_fields)


def test_the_head_of_a_dcd_file():
    with open(DCD, "rb") as file:
        header = _core.dcd_header(DCD, file.read(4096))
    with MDAnalysis.lib.formats.libdcd.DCDFile(DCD) as known:
        info = known.header
        assert header.n_atoms == info["natoms"]
        assert header.integers[1:3] == [info["istart"], info["nsavc"]]
        n_bytes = os.path.getsize(DCD) - header.size
        assert n_bytes == len(known) * header.frame_size
    assert len(header.integers) == 20
    assert (header.marker_size, header.big_endian, header.n_fixed) == (4, False, 0)
    assert header.frame_size == header.first_frame_size


def test_the_header_of_a_netcdf_file():
    netcdf = pytest.importorskip("scipy.io").netcdf_file
    with open(NCDF, "rb") as file:
        header = _core.netcdf_header(NCDF, file.read(1 << 20))
    with netcdf(NCDF, mmap=False) as known:
        assert header.dimensions == {name: n or 0 for name, n in known.dimensions.items()}
        assert set(header.variables) == set(known.variables)
        for name, variable in header.variables.items():
            assert tuple(variable.dimensions) == known.variables[name].dimensions
            stored = known.variables[name].data.dtype
            assert np.dtype(variable.kind) == stored
        assert header.attributes["Conventions"] == known.Conventions
        assert header.n_records == known.variables["time"].shape[0]


@pytest.mark.parametrize("parse", [_core.dcd_header, _core.netcdf_header, _core.history_header])
def test_what_is_no_header_is_named(parse):
    with pytest.raises(DamagedFileError) as caught:
        parse("some.file", b"no header at all, of any format\n" * 9)
    assert caught.value.path == "some.file"
    with pytest.raises(DamagedFileError, match="at least"):
        parse("some.file", b"")
