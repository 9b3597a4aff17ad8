"""Tests of the registry of formats in the compiled module."""

from paceline import _core


def test_formats_tell_what_they_hold():
    formats = {format.name: format for format in _core.formats()}
    text = ["HISTORY", "CONFIG", "LAMMPSDUMP"]
    assert list(formats) == ["XTC", "TRR", "DCD", "NetCDF", *text]
    extensions = [extension for format in formats.values() for extension in format.extensions]
    assert len(set(extensions)) == len(extensions)
    assert {name for name, format in formats.items() if format.precision} == {"XTC"}
    assert {name for name, format in formats.items() if format.is_text} == set(text)
    for format in formats.values():
        # All written formats can be read again.
        assert format.writes & ~format.reads == 0
        assert not (format.equal_frames and format.mixed_fields)
