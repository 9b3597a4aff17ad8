"""Tests of the page and of the server of results that are written while a simulation runs."""

import http.client
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import MDAnalysis
import numpy as np
import pytest
from helpers.growing import Growing
from helpers.waiting import PATIENCE, until

import paceline
from paceline.analysis.battery import Battery
from paceline.analysis.interactive_charts import charts_of
from paceline.analysis.rms import RMSD
from paceline.cli import main, results_server, shared_analysis_steps
from paceline.cli.options import listening
from paceline.cli.results_server import ResultsServer
from paceline.errors import UnsupportedError
from paceline.performance.analysis_results_page import PageState

BATTERY = {"rmsd": {"select": "name CA"}, "rmsf": {"select": "name CA"}, "msd": {}}


def asked(server, path, method="GET"):
    """Request a path as it is, without the corrections of a browser."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


@pytest.fixture
def growing(adk_xtc, tmp_path):
    return Growing(adk_xtc.trajectory, tmp_path / "growing.xtc")


@pytest.fixture
def folder(tmp_path):
    """A folder of results beside a file that nobody may read."""
    (tmp_path / "secret.txt").write_text("secret")
    results = tmp_path / "results"
    results.mkdir()
    (results / "index.html").write_text("the page")
    (results / "rmsd.csv").write_text("frame,RMSD\n0,1\n")
    (results / "other.txt").write_text("secret")
    return results


@pytest.fixture
def server(folder):
    names = ("index.html", "rmsd.csv", "rmsf.csv", "linked.csv")
    files = {name: folder / name for name in names}
    with ResultsServer("127.0.0.1", 0, files, title="md.xtc", every=0.1) as server:
        yield server


def test_files_of_the_command_are_served(server):
    for path in ("/", "/index.html", "/index.html?1"):
        status, headers, body = asked(server, path)
        assert (status, body) == (200, b"the page")
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert not {"Last-Modified", "ETag", "Expires"} & headers.keys()
    status, headers, body = asked(server, "/rmsd.csv")
    assert (status, headers["Content-Length"], len(body)) == (200, "15", 15)
    status, headers, body = asked(server, "/rmsd.csv", "HEAD")
    assert (status, headers["Content-Length"], body) == (200, "15", b"")


@pytest.mark.parametrize(
    "path",
    [
        *("/other.txt", "/rmsf.csv", "/../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt"),
        *("//etc/passwd", "/./rmsd.csv", "/results/", "/index.html/", "/%00", "/rmsd.csv%00"),
        *("/..", "/.", "/%2e%2e%5csecret.txt", "http://localhost/../secret.txt"),
    ],
)
def test_no_other_file_is_served(server, path):
    status, _, body = asked(server, path)
    assert status == 404
    assert b"secret" not in body
    assert b"other.txt" not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_nothing_is_written(server, method, folder):
    assert asked(server, "/rmsd.csv", method)[0] == 501
    assert (folder / "rmsd.csv").read_text() == "frame,RMSD\n0,1\n"


def test_links_are_not_followed(server, folder):
    try:
        (folder / "linked.csv").symlink_to("../secret.txt")
    except OSError:
        pytest.skip("no links")
    assert asked(server, "/linked.csv")[0] == 404
    (folder / "linked.csv").unlink()
    (folder / "linked.csv").mkdir()
    assert asked(server, "/linked.csv")[0] == 404


def test_a_request_that_is_not_http_ends_no_server(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
        client.sendall(b"\x00" * 100 + b"\r\n\r\n")
        client.recv(1)
    assert asked(server, "/")[0] == 200


def test_a_busy_port_is_an_error(server):
    with pytest.raises(UnsupportedError, match=rf"127\.0\.0\.1:{server.port}: another program"):
        ResultsServer("127.0.0.1", server.port, {}, title="", every=1)
    with pytest.raises(UnsupportedError, match="there is no address 'no such host'"):
        ResultsServer("no such host", 0, {}, title="", every=1)


@pytest.mark.parametrize("text", ["", "x", "70000", "-1", ":80", "host:", "1.5"])
def test_what_is_not_a_port_is_refused(text):
    with pytest.raises(Exception, match="expected a port such as 8000"):
        listening(text)


def test_a_page_is_made_of_files_without_one(tmp_path):
    files = {name: tmp_path / name for name in ("rmsd.csv", "rmsd.png")}
    with ResultsServer("127.0.0.1", 0, files, title="a < b.xtc", every=0.1) as server:
        _, _, body = asked(server, "/")
        assert "Waiting for the first results" in body.decode()
        assert "a &lt; b.xtc" in body.decode()
        files["rmsd.png"].write_bytes(b"image")
        files["rmsd.csv"].write_text("table")
        page = asked(server, "/")[2].decode()
        assert '<a href="rmsd.csv">' in page
        assert 'http-equiv="refresh"' in page
        source = re.search(r'<img src="(rmsd\.png\?\d+)"', page)[1]
        assert asked(server, f"/{source}")[2] == b"image"


def test_a_browser_gets_the_last_page(folder):
    """The server ends when a browser that has shown the page has asked for it again."""
    files = {"index.html": folder / "index.html"}
    server = ResultsServer("127.0.0.1", 0, files, title="", every=PATIENCE)
    ending = threading.Event()

    def serve():
        with server:
            asked(server, "/")
            (folder / "index.html").write_text("the last page")
            ending.set()

    thread = threading.Thread(target=serve)
    thread.start()
    assert ending.wait(PATIENCE)
    until(lambda: server.is_over)
    assert asked(server, "/")[2] == b"the last page"
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_server_without_a_reader_ends_at_once(folder):
    with ResultsServer("127.0.0.1", 0, {}, title="", every=PATIENCE):
        pass


def test_the_page_shows_its_state_and_looks_for_a_new_one(universe, tmp_path):
    battery = Battery(BATTERY, universe).run(stop=30)
    state = PageState("30 frames analysed", 2.0, ["msd"], written=1e9 + 0.25)
    during = battery.during()
    during.save(tmp_path / "live", state=state)
    page = (tmp_path / "live" / "index.html").read_text(encoding="utf-8")
    first = re.search(r'<p class="state".*?</p>', page, re.DOTALL)[0]
    assert "<strong>30 frames analysed.</strong> Computed at the end: msd." in first.replace(
        "\n", ""
    )
    assert 'data-written="1000000000.250"' in first
    assert '<noscript><meta http-equiv="refresh" content="2">' in page.replace("\n", "")
    assert "location.reload()" in page
    assert "connect-src 'self'" in page
    assert "left out: msd" not in page
    battery.save(tmp_path / "whole")
    page = (tmp_path / "whole" / "index.html").read_text(encoding="utf-8")
    assert 'class="state"' not in page
    assert "refresh" not in page
    assert "connect-src" not in page


def test_curves_of_a_running_simulation_have_running_means(noise, tmp_path):
    universe = paceline.Universe(*noise)
    battery = Battery({"rmsd": {"select": "all"}}, universe)
    for n_frames, state, has_mean in [
        (99, PageState("", 2.0, []), False),
        (100, PageState("", 2.0, []), True),
        (100, None, False),
    ]:
        battery.run(stop=n_frames).save(tmp_path, state=state, overwrite=True)
        page = (tmp_path / "index.html").read_text(encoding="utf-8")
        assert ('"smooth":true' in page.replace(" ", "")) == has_mean
    table = battery.analyses["rmsd"].results.table
    (chart,) = charts_of(table, is_live=True)
    values = table.columns["RMSD (Å)"]
    assert chart.curves[0].smooth[50] == pytest.approx(values[45:56].mean())


def test_an_update_shows_its_state_and_means(adk_xtc):
    universe = paceline.Universe(*adk_xtc)
    rmsd = RMSD(universe.select_atoms("name CA"))
    *_, update, last = paceline.live([rmsd, Battery(BATTERY, universe).every["msd"]], idle=0.05)
    assert str(update).startswith("98 frames analysed, the last at ")
    assert str(update).endswith("; ended: it has not grown for 0.05 s")
    assert not update.is_last
    shown = last._repr_html_()
    assert str(last) in shown
    assert '<th scope="row">RMSD</th>' in shown
    assert "drifting" in shown


class Command:
    """A command that follows a file, in a process of its own."""

    def __init__(self, *arguments, cwd):
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "paceline",
                *map(str, arguments),
                "--follow",
                "--every",
                "0.05s",
            ],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def ended(self):
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, err


def n_rows(path):
    """Return the number of rows of a table that may not exist yet; it is complete or absent."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return 0
    return sum(not line.startswith("#") for line in lines) - 1


@pytest.mark.parametrize("end", ["idle", "Ctrl-C", "frame"])
def test_a_command_follows_a_file(end, growing, adk_xtc, tmp_path):
    # An update may take longer than a short --idle: the whole file is there from the beginning.
    first, *others = [98] if end == "idle" else [20, 50, 98]
    growing.grow(first)
    table, figure = tmp_path / "rmsd.csv", tmp_path / "rmsd.svg"
    ends = {
        "idle": ["--idle", "1s"],
        "Ctrl-C": ["--idle", f"{PATIENCE}s"],
        "frame": ["--idle", f"{PATIENCE}s", "--end", "98"],
    }
    given = ["--select", "name CA", "-o", table, "--plot", figure, *ends[end]]
    command = Command("rmsd", adk_xtc.topology, growing.path, *given, cwd=tmp_path)
    until(lambda: n_rows(table) == first or command.process.poll() is not None)
    for n in others:
        growing.grow(n)
        until(lambda n=n: n_rows(table) == n or command.process.poll() is not None)
    if end == "Ctrl-C":
        command.interrupt()
    status, out, err = command.ended()
    assert (status, out) == (0, ""), err
    reasons = {
        "idle": "ended: it has not grown for 1 s",
        "Ctrl-C": "ended: it was interrupted",
        "frame": "ended: --end 98 is reached",
    }
    assert reasons[end] in err
    assert f"wrote {table}, {figure}" in err
    assert figure.read_text(encoding="utf-8").rstrip().endswith("</svg>")
    assert sorted(path.name for path in tmp_path.glob("*.svg")) == ["rmsd.svg"]
    alone = RMSD(paceline.Universe(*adk_xtc).select_atoms("name CA")).run()
    alone.results.save(tmp_path / "alone.csv")
    rows, wanted = (
        [line for line in path.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
        for path in (table, tmp_path / "alone.csv")
    )
    assert rows == wanted


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """Structure and trajectory of four atoms that shake around their places."""
    folder = tmp_path_factory.mktemp("noise")
    universe = MDAnalysis.Universe.empty(4, trajectory=True)
    universe.add_TopologyAttr("names", ["A", "B", "C", "D"])
    random, places = np.random.default_rng(3), 10 * np.eye(4, 3)
    universe.atoms.positions = places
    universe.atoms.write(folder / "noise.gro")
    with MDAnalysis.Writer(str(folder / "noise.xtc"), 4) as writer:
        for k in range(400):
            universe.trajectory.ts.time = 2.0 * k
            universe.atoms.positions = places + random.normal(0, 1, (4, 3))
            writer.write(universe.atoms)
    return [str(folder / "noise.gro"), str(folder / "noise.xtc")]


def test_a_known_mean_ends_a_command(noise, tmp_path, capsys):
    wanted = ["--select", "all", "-o", str(tmp_path / "rmsd.csv")]
    given = ["--follow", "--stop-when", "rmsd sampled and rmsd 0.2"]
    assert main(["rmsd", *noise, *wanted, *given]) == 0
    assert "ended: RMSD is sampled: mean " in capsys.readouterr().err
    assert n_rows(tmp_path / "rmsd.csv") == 400


def test_a_battery_is_served_while_it_runs(noise, tmp_path, capsys, monkeypatch):
    (tmp_path / "battery.toml").write_text('[rmsd]\nselect = "all"\n[msd]\nselect = "all"\n')
    pages = []

    class Asked(ResultsServer):
        def __exit__(self, *error):
            pages.append(asked(self, "/")[2].decode())
            pages.append(asked(self, "/rmsd.csv")[2].decode())
            return super().__exit__(*error)

    write = shared_analysis_steps._write_page
    monkeypatch.setattr(results_server, "ResultsServer", Asked)

    def and_ask(args, battery, update, conditions):
        write(args, battery, update, conditions)
        pages.append((tmp_path / "results" / "index.html").read_text(encoding="utf-8"))

    monkeypatch.setattr(shared_analysis_steps, "_write_page", and_ask)
    main(
        [
            *("run", str(tmp_path / "battery.toml"), "-s", noise[0], "-f", noise[1]),
            *("-o", str(tmp_path / "results"), "--follow", "--idle", "0.1s", "--every", "0.01s"),
            *("--serve", "0", "--stop-when", "rmsd 0.0001"),
        ]
    )
    first, second, last, table = pages
    assert "Computed at the end: msd." in first
    assert "not known yet: rmsd is not shown to be sampled" in first
    assert "ended: it has not grown for 0.1 s" in second
    assert "Computed now: msd." in second
    assert 'class="state"' not in last
    assert "msd.csv" in last
    assert table.startswith("#")
    assert "results are shown at http://127.0.0.1:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["rmsd"], "'sas': there is no such analysis; possible: rmsd"),
        (["distances"], "'sas': there is no such analysis; possible: "),
        (["battery"], "'sas': there is no such analysis; possible: "),
        (["run", "battery.toml"], "'sas': there is no such analysis; possible: core"),
    ],
)
def test_a_wrong_name_is_reported_before_the_file_is_awaited(
    command, reason, noise, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("battery.toml").write_text('[core]\nanalysis = "rmsd"\n')
    files = ["-s", noise[0], "-f", "not-there.xtc"]
    given = ["--follow", "--idle", f"{PATIENCE}s", "--stop-when", "sas sampled"]
    atoms = ["--select", "all", "--select-2", "all"] if command == ["distances"] else []
    assert main([*command, *files, *atoms, *given]) == 2
    err = capsys.readouterr().err
    assert reason in err
    assert "waiting" not in err


def test_the_command_names_its_analysis_in_a_condition(noise, tmp_path, capsys):
    """Its class depends on the options."""
    atoms = [
        "--select",
        "name A",
        "--select-2",
        "name B",
        "--between",
        "centers",
        "--weights",
        "none",
    ]
    output = ["-o", str(tmp_path / "distances.csv")]
    given = ["--follow", "--stop-when", "distances sampled"]
    assert main(["distances", *noise, *atoms, *output, *given]) == 0
    assert "ended: " in capsys.readouterr().err


def test_the_reference_frame_of_a_command_is_awaited(growing, adk_xtc, tmp_path):
    growing.grow(3)
    table = tmp_path / "contacts.csv"
    given = ["--select", "name CA and resid 1-99", "--select-2", "name CA and resid 100-214"]
    given += ["--radius", "8", "--ref", "5", "-o", table, "--end", "20"]
    command = Command(
        *("contacts", adk_xtc.topology, growing.path, *given, "--idle", f"{PATIENCE}s"),
        cwd=tmp_path,
    )
    growing.grow(20)
    status, _, err = command.ended()
    assert status == 0, err
    assert n_rows(table) == 20


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (["--serve", "0"], "--serve applies to a trajectory that grows: add --follow"),
        (["--stop-when", "rmsd sampled"], "--stop-when applies to a trajectory that grows"),
        (["--follow", "--serve", "0"], "--serve shows files: name them with -o or --plot"),
        (["--follow", "--stop-when", "sasa 1"], "there is no such analysis; possible: rmsd"),
    ],
)
def test_options_that_do_not_fit_are_refused(noise, given, reason, capsys):
    assert main(["rmsd", *noise, "--select", "all", *given]) == 2
    assert reason in capsys.readouterr().err
