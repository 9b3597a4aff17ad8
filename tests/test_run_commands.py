"""Tests of the tasks and tutorials of the manual: their commands run on real files and draw
figures.
"""

import importlib.util
import struct
from pathlib import Path

import pytest

from paceline.cli.command_line import main

DOCS = Path(__file__).parents[1] / "docs"
spec = importlib.util.spec_from_file_location("run_commands", DOCS / "run_commands.py")
run_commands = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_commands)
TEXTS = {page: (DOCS / page).read_text(encoding="utf-8") for page in run_commands.PAGES}
#: Maximum number of prose lines of a tutorial.
PROSE = 100
#: Page with two dozen figures, which takes longest; only `make test-all` runs it.
SLOW = "tutorials/replicas.md"
#: First bytes of an image, by extension.
HEADS = {".png": b"\x89PNG", ".svg": b"<?xml"}


def test_tutorials_are_listed_and_short():
    tutorials = {page for page in TEXTS if page.startswith(run_commands.TUTORIALS)}
    assert tutorials == {f"tutorials/{path.name}" for path in (DOCS / "tutorials").iterdir()}
    for page in tutorials:
        text = run_commands.BLOCK.sub("", TEXTS[page])
        assert sum(bool(line) for line in text.splitlines()) <= PROSE, page


@pytest.mark.parametrize("page", TEXTS)
def test_each_figure_is_of_this_page_and_shown_once(page):
    images = run_commands.images(TEXTS[page])
    assert len(set(images)) == len(images)
    assert {image.partition("/")[0] for image in images} == {Path(page).stem}
    words = {word for words in run_commands.commands(TEXTS[page]) for word in words}
    made = {f"{Path(page).stem}/{word}" for word in words if word.endswith(".png")}
    assert made == {image for image in images if image.endswith(".png")}


def test_answers_stand_below_their_commands():
    text = "a\n```bash\npaceline one\npaceline two\n```\nb\n```bash\npaceline three\n```\n"
    shown = run_commands.with_answers(text, ["1\n", "2\n", ""])
    assert shown.count("```text") == 1
    assert shown.index("paceline two") < shown.index("1\n2\n") < shown.index("b\n")


def with_marks(page):
    return pytest.param(page, marks=pytest.mark.full) if page == SLOW else page


@pytest.mark.skipif(not run_commands.has_files(), reason="the files of ProLIF are not installed")
@pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")
@pytest.mark.parametrize("page", map(with_marks, TEXTS))
def test_commands_make_the_figures(page, tmp_path, monkeypatch, capsys):
    run_commands.PAGES[page](tmp_path)
    monkeypatch.chdir(tmp_path)
    for words in run_commands.commands(TEXTS[page]):
        assert words[0] == "paceline"
        assert main(words[1:]) in (0, None), words
        printed = "".join(capsys.readouterr())
        assert printed or not page.startswith(run_commands.TUTORIALS), words
    for image in run_commands.images(TEXTS[page]):
        path = tmp_path / image.partition("/")[2]
        head = path.read_bytes()[:24]
        assert head.startswith(HEADS[path.suffix]), image
        if path.suffix == ".png":
            width, height = struct.unpack(">II", head[16:])
            assert min(width, height) > 200
