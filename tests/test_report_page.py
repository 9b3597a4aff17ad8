"""Tests of the page of a report: complete, self-contained, and legible for runs of any size."""

import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from paceline.analysis.rms import RMSD
from paceline.cli import main
from paceline.errors import UnsupportedError
from paceline.performance.number_format import number, percent
from paceline.performance.record import COMM, WALL_TIME
from paceline.performance.report import LINES, page_of
from paceline.performance.run_figures import (
    ROWS,
    drawings_of,
    figure_of,
    rows_of,
    timeline_of,
    workers_per_bar,
)
from paceline.report import advice_of, report_of
from paceline.timing import BlockTiming, DuplicateAttempt, Timings

MS = 1_000_000
#: Elements without an end tag.
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Parser that checks nesting of elements, and records visible text and loaded resources."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.ids, self.loaded, self.words = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        for name in ("src", "href", "xlink:href", "data", "srcset"):
            self.loaded.append(attributes.get(name) or "")
        self.loaded += re.findall(r"url\(([^)]*)\)", " ".join(map(str, attributes.values())))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.words.append(data)
        else:
            assert "@import" not in data
            self.loaded += re.findall(r"url\(([^)]*)\)", data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def count(self, tag):
        return sum(name == tag for name, _ in self.elements)


def checked(text):
    """Return a parsed page, after checking that it is well-formed and self-contained."""
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert len(set(page.ids)) == len(page.ids)
    assert page.count("script") == page.count("link") == page.count("iframe") == 0
    for address in filter(None, page.loaded):
        assert address.startswith(("#", "data:image/png;base64,")), address
        if address.startswith("#"):
            assert address[1:] in page.ids
    drawn = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert all(svg["role"] == "img" and len(svg["aria-label"]) > 20 for svg in drawn)
    assert len({svg["aria-label"] for svg in drawn}) == len(drawn)
    assert "nan" not in page.text
    return page


def run_of(workers, n_blocks, *, slow=(), skew=0):
    """Return timings of blocks; clocks of all hosts except the first are ahead by `skew`, ns."""
    rng = random.Random(7)
    free = dict.fromkeys(workers, 0)
    dealt = 10**15
    blocks = []
    first_host = workers[0].split(":")[0] if workers else ""
    for block in range(n_blocks):
        worker = workers[block % len(workers)]
        parts = {"open": 0 if free[worker] else 2 * MS, "read": rng.randrange(MS, 3 * MS)}
        parts |= {
            "decode": 8 * MS,
            "transform": 0,
            "compute": 4 * MS * (20 if worker in slow else 1),
        }
        start = dealt + free[worker] + MS // 2
        free[worker] += MS // 2 + sum(parts.values()) + MS // 4
        end = dealt + free[worker]
        shift = 0 if worker.startswith(f"{first_host}:") else skew
        blocks.append(
            BlockTiming(
                job=0, block=block, first_frame=16 * block, n_frames=16, worker=worker,
                start=start + shift, end=end + shift, wait=MS // 2, comm=MS, bytes=10**6, calls=1,
                **parts,
            )
        )  # fmt: skip
    end = dealt + max(free.values(), default=0) + 5 * MS
    return Timings(
        "mpi", dealt - 9 * MS, dealt, end, t_init_traj=0.25, t_comm=0.5, blocks=blocks,
        n_workers=len(workers), trajectory="md <1> & 2.xtc", bytes_used=4 * 10**6,
    )  # fmt: skip


def workers_of(n_hosts, n_workers):
    """Return names of workers in random order."""
    names = [f"node{k % n_hosts:04d}.example.org:{900 + k}:{900 + k}" for k in range(n_workers)]
    random.Random(1).shuffle(names)
    return names


@pytest.fixture
def adk_run(universe):
    return RMSD(universe, select="name CA").run(backend="serial", block_frames=16).timings


def test_tasks_of_workers_and_names_of_the_papers_are_on_the_page():
    made = run_of(workers_of(1, 3), 8)
    drawings = {drawing.title: drawing for drawing in drawings_of(made, report_of(made))}
    (axes,) = drawings["Tasks of a worker"].figure().axes
    bars = [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in axes.patches]
    assert dict(bars) == pytest.approx({2: 1, 3: 2})
    page = checked(page_of(made))
    assert "In the papers' names" in page.text
    assert all(name in page.text.split() for name in report_of(made).published)


def test_a_page_holds_the_numbers_of_its_run(adk_run):
    report = report_of(adk_run)
    page = checked(page_of(adk_run))
    assert page.count("svg") == len(drawings_of(adk_run, report)) == 4
    assert "98 frames in" in page.text
    (worker,) = report.workers
    share = percent(report.shares["t_decode"])
    for words in (
        worker.worker,
        report.trajectory,
        f"t_total {number(report.t_total)} s",
        f"R_comp_IO {number(report.R_comp_IO)}",
        f"t_decode {number(worker.t_decode)} {number(worker.t_decode)} {share}",
        advice_of(report)[0].text,
        f"{report.bytes_read / 1e6:.3g} MB",
    ):
        assert words in page.text


def test_stragglers_are_named_with_cause_and_host():
    workers = workers_of(2, 8)
    page = checked(page_of(run_of(workers, 64, slow=workers[5:6])))
    number = sorted(workers).index(workers[5]) + 1
    host = workers[5].split(":")[0]
    assert f"{number} {host} computing" in page.text
    assert [attributes for tag, attributes in page.elements if tag == "tr"].count(
        {"class": "slow"}
    ) == 1


def test_what_files_are_called_is_text():
    text = page_of(run_of(["<b>:1:1"], 1))
    assert "md &lt;1&gt; &amp; 2.xtc" in text
    assert "&lt;b&gt;:1:1" in text
    checked(text)


@pytest.mark.parametrize("timings", [Timings(), Timings("threads", 5, 5, 10**9), run_of([], 0)])
def test_a_run_without_blocks_has_a_page(timings, tmp_path):
    page = checked(page_of(timings))
    assert "No block took any time" in page.text
    assert page.count("svg") == 0
    timings.report(tmp_path / "run.png")


def test_one_block_has_all_figures():
    page = checked(page_of(run_of(["laptop:1:1"], 1)))
    assert page.count("svg") == 4
    assert "16 frames in" in page.text
    assert "on 1 worker" in page.text


def test_a_block_that_took_no_time_is_no_trouble():
    timings = run_of(["laptop:1:1"], 1)
    nothing = dict.fromkeys(("wait", "open", "read", "decode", "transform", "compute", "comm"), 0)
    timings.blocks = [replace(timings.blocks[0], end=timings.dealt, start=timings.dealt, **nothing)]
    assert "16 frames in" in checked(page_of(timings)).text


def test_ten_thousand_workers_are_put_together():
    workers = workers_of(400, 10_000)
    timings = run_of(workers, 10_000, slow=workers[77:78])
    text = page_of(timings)
    page = checked(text)
    assert len(text) < 2_000_000
    assert "Each bar is the mean of 50 neighbouring workers of 10,000" in page.text
    shown = " Of 10,000 workers, the figure shows the 12 with the longest time per frame"
    assert f"the components in order.{shown}" in page.text
    assert (
        f"the {LINES} with the longest time per frame; saved timings (.csv) have all" in page.text
    )
    assert f"{workers[77]}" in page.text
    assert page.count("tr") < 200


def test_thousands_of_blocks_of_one_worker_are_put_together():
    text = page_of(run_of(["laptop:1:1"], 5_000))
    assert len(text) < 500_000
    page = checked(text)
    assert "the components in order. There are too many blocks to draw each" in page.text
    assert "the fractions of its components" in page.text


def test_workers_are_counted_by_their_blocks():
    made = run_of(["a:1:1", "a:2:2", "a:3:3"], 8)  # 3, 3 and 2 blocks
    (drawing,) = (one for one in drawings_of(made, report_of(made)) if "Tasks" in one.title)
    (axes,) = drawing.figure().axes
    bars = [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in axes.patches]
    np.testing.assert_allclose(bars, [(2, 1), (3, 2)])


def test_a_host_of_another_clock_makes_a_page():
    """Check clocks that are not aligned: timings made by hand may lack what a run does."""
    other = run_of(workers_of(2, 4), 40, skew=5 * 10**17)
    assert checked(page_of(other)).count("svg") == 5


def test_attempts_that_did_not_count_are_drawn_to_the_end_of_the_run():
    timings = run_of(["a:1:1", "a:2:2"], 8)
    end = max(block.end for block in timings.blocks)
    first = timings.blocks[0]
    timings.abandoned = [
        DuplicateAttempt(
            replace(first, worker=worker, start=end - 5 * MS, end=end + 10**12), came=False
        )
        for worker in ("b:1:1", "")
    ]
    timeline = timeline_of(timings)
    assert timeline.workers == ["a:1:1", "a:2:2", "b:1:1"]
    assert timeline.parts[-1].sum() == pytest.approx(5e-3)
    assert "abandoned" in checked(page_of(timings)).text


def test_workers_are_in_the_order_of_host_and_number():
    names = ["node10:7:7", "node9:12:12", "node9:7:7"]
    assert timeline_of(run_of(names, 3)).workers == ["node9:7:7", "node9:12:12", "node10:7:7"]


def test_the_task_timeline_of_many_workers_shows_extremes():
    workers = workers_of(5, 100)
    timeline = timeline_of(run_of(workers, 400, slow=workers[3:5]))
    rows = rows_of(timeline)
    assert len(set(rows)) == len(rows) == ROWS
    assert {timeline.workers[row] for row in rows[:2]} == set(workers[3:5])
    assert workers_per_bar(100) == 1


def test_the_curves_hold_all_that_was_read():
    timings = run_of(workers_of(3, 12), 240)
    timeline = timeline_of(timings)
    axes = figure_of(timings).axes[-1]
    (steps,) = [patch for patch in axes.patches if hasattr(patch, "get_data")]
    rate, edges, _ = steps.get_data()
    unit = {"kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9}[axes.get_ylabel()[6:-1]]
    time_unit = {"ms": 1e-3, "s": 1}[axes.get_xlabel().split("(")[1][:-1]]
    assert np.sum(rate * np.diff(edges)) * unit * time_unit == pytest.approx(timeline.bytes.sum())


def test_every_part_has_one_colour():
    colours = [part.colour for part in (*WALL_TIME, COMM)]
    assert len(set(colours)) == len(colours)


def test_a_report_is_saved_by_its_ending(adk_run, tmp_path):
    for name in ("run.html", "run.png", "run.SVG"):
        adk_run.report(tmp_path / name)
        with pytest.raises(FileExistsError, match="it is replaced only with overwrite=True"):
            adk_run.report(tmp_path / name)
    adk_run.report(tmp_path / "run.html", overwrite=True)
    checked((tmp_path / "run.html").read_text(encoding="utf-8"))
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(tmp_path / "run.SVG").getroot().tag.endswith("svg")
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("name", ["run.pdf", "run"])
def test_another_ending_is_refused_by_name(name, tmp_path):
    with pytest.raises(UnsupportedError, match=rf"{name}: reports are saved as \.html"):
        Timings().report(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def run(capsys):
    """Run the command in this process: status, standard output, and standard error."""

    def run(*arguments):
        status = main([str(argument) for argument in arguments])
        written = capsys.readouterr()
        return status, written.out, written.err

    return run


def test_timings_that_a_command_saved_make_the_same_page(adk, tmp_path, run):
    command = ("rmsf", *adk, "--backend", "serial", "--report")
    assert run(*command, tmp_path / "run.csv")[0] == 0
    status, out, err = run("report", tmp_path / "run.csv")
    assert (status, out) == (0, "")
    assert err.startswith(f"{tmp_path / 'run.html'}: 98 frames in")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert adk.trajectory in checked(page).text
    assert page == page_of(Timings.from_csv(tmp_path / "run.csv"))
    status, _, err = run("report", tmp_path / "run.csv")
    assert status == 2
    assert "run.html exists" in err


def test_analyses_write_their_report(adk, tmp_path, run):
    status, out, _ = run("rmsd", *adk, "--backend", "serial", "--report", tmp_path / "run.html")
    assert status == 0
    assert len(out.splitlines()) == 99
    assert "98 frames in" in checked((tmp_path / "run.html").read_text(encoding="utf-8")).text
    pairs = ("rdf", *adk, "--select", "name CA", "--norm", "none", "--step", "49")
    status, _, _ = run(*pairs, "--report", tmp_path / "rdf.html")
    assert status == 0
    assert "2 frames in" in checked((tmp_path / "rdf.html").read_text(encoding="utf-8")).text
    written = ("convert", adk.trajectory, tmp_path / "a.xtc", "--report", tmp_path / "convert.csv")
    assert run(*written)[0] == 0
    assert Timings.from_csv(tmp_path / "convert.csv").n_frames == 98


def test_a_report_that_cannot_be_made_is_refused_before_the_work(adk, tmp_path, run):
    for command in (("rmsd", *adk), ("convert", adk.trajectory, tmp_path / "a.xtc")):
        for name, words in (
            ("a.pdf", "a.pdf: reports are saved as"),
            ("no/a.png", "does not exist"),
        ):
            status, out, err = run(*command, "--report", tmp_path / name)
            assert (status, out) == (2, "")
            assert words in err
    assert not list(tmp_path.iterdir())


def test_a_report_has_a_name_of_its_own(adk, tmp_path, run):
    for option, name in (("-o", "run.csv"), ("--plot", "run.png")):
        path = tmp_path / name
        status, out, err = run("rmsd", *adk, option, path, "--report", path, "--overwrite")
        assert (status, out) == (2, "")
        assert f"{path}: one file for two purposes" in err
    assert not list(tmp_path.iterdir())


def test_unknown_ending_of_report_is_refused_for_timings(adk, tmp_path, run):
    assert "timings as .csv, not '.txt'" in run("rmsd", *adk, "--report", tmp_path / "a.txt")[2]
    assert "timings" not in run("report", tmp_path / "a.csv", "-o", tmp_path / "a.txt")[2]


def test_what_is_no_timings_is_refused(adk, tmp_path, run):
    (tmp_path / "table.csv").write_text("frame,RMSD\n0,1.0\n")
    status, out, err = run("report", tmp_path / "table.csv")
    assert (status, out) == (1, "")
    assert "table.csv: line 1: expected" in err
    assert run("report", tmp_path / "none.csv")[0] == 2
    assert run("report", tmp_path / "table.csv", "-o", tmp_path / "a.txt")[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]
