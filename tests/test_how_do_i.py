"""The page "How do I …?": its commands run on real files and make its figures."""

import importlib.util
import struct
from pathlib import Path

import pytest

from paceline.cli.command_line import main

DOCS = Path(__file__).parents[1] / "docs"
spec = importlib.util.spec_from_file_location("how_do_i", DOCS / "how_do_i.py")
how_do_i = importlib.util.module_from_spec(spec)
spec.loader.exec_module(how_do_i)
TEXT = (DOCS / how_do_i.PAGE).read_text(encoding="utf-8")


def test_each_figure_is_made_by_one_command():
    made = [word for words in how_do_i.commands(TEXT) for word in words if word.endswith(".png")]
    assert sorted(made) == sorted(how_do_i.images(TEXT))


@pytest.mark.skipif(not how_do_i.has_files(), reason="the files of ProLIF are not installed")
@pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")
def test_commands_make_the_figures(tmp_path, monkeypatch):
    how_do_i.write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    for words in how_do_i.commands(TEXT):
        assert words[0] == "paceline"
        assert main(words[1:]) in (0, None), words
    for name in how_do_i.images(TEXT):
        head = (tmp_path / name).read_bytes()[:24]
        assert head.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", head[16:])
        assert min(width, height) > 200
