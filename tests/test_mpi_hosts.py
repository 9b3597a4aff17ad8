"""Tests of ranks on two hosts: network namespaces of this machine, if the test may create them."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.mpi import LONGEST, MPIEXEC, SCRIPTS, environment, needs_mpi
from helpers.programs import needs_program
from helpers.waiting import until

import paceline

pytestmark = [needs_mpi, needs_program("ip")]
HYDRA = Path(shutil.which(MPIEXEC[0]) or "mpiexec").resolve().with_name("mpiexec.hydra")


def ip(*words):
    done = subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout


@pytest.fixture
def hosts():
    """Two hosts, 10.77.0.1 and 10.77.0.2; the value is the prefix of their names."""
    name = f"pl{os.getpid()}"
    spaces = [f"{name}-{k}" for k in (1, 2)]
    if not HYDRA.exists():
        pytest.skip("hosts are had with MPICH's mpiexec.hydra alone")
    made = []
    try:
        for space in spaces:
            ip("netns", "add", space)
            made.append(space)
        ends = ["veth", "netns", spaces[0], "type", "veth", "peer", "veth", "netns", spaces[1]]
        ip("link", "add", *ends)
        for k, space in enumerate(spaces, 1):
            ip("-n", space, "address", "add", f"10.77.0.{k}/24", "dev", "veth")
            for link in ("lo", "veth"):
                ip("-n", space, "link", "set", link, "up")
        # MPI cannot use a new link until its address has been checked for duplicates.
        until(lambda: not any("tentative" in ip("-n", one, "address") for one in spaces))
        until(lambda: all(answers(*pair) for pair in zip(spaces, ("2", "1"), strict=True)))
        yield name
    except (OSError, subprocess.CalledProcessError) as reason:
        pytest.skip(f"network namespaces cannot be made: {reason}")
    finally:
        for space in made:
            ip("netns", "delete", space)


def answers(space, host):
    """Return True if a host of the other namespace refuses a connection, so that it is reached."""
    code = f"import socket as s; exit(s.socket().connect_ex(('10.77.0.{host}', 9)))"
    found = subprocess.run(["ip", "netns", "exec", space, sys.executable, "-c", code], check=False)
    return found.returncode == errno.ECONNREFUSED


def on_both(hosts, *arguments):
    """Run Python on two ranks of each host."""
    command = [
        *("ip", "netns", "exec", f"{hosts}-1", HYDRA, "-launcher", "ssh", "-iface", "veth"),
        *("-launcher-exec", SCRIPTS / "host.sh", "-hosts", "10.77.0.1,10.77.0.2"),
        *("-n", "4", "-ppn", "2", sys.executable, *arguments),
    ]
    return subprocess.run(
        [str(word) for word in command],
        env=environment() | {"PACELINE_HOSTS": hosts},
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )


def test_two_hosts(hosts, adk, tmp_path):
    script = ("-m", "paceline.mpi", SCRIPTS / "hosts.py")
    done = on_both(hosts, *script, *adk, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    # The first host is this machine, with its own name.
    assert f"{hosts}-2" in done.stdout.split()
    assert len(done.stdout.split()) == 2


def test_results_are_shared_on_each_host(hosts, adk):
    done = on_both(hosts, SCRIPTS / "shared_results.py", *adk, "shared")
    assert (done.returncode, done.stdout, done.stderr) == (0, "shared\n", "")


def test_snapshots_of_two_hosts(hosts, tmp_path):
    done = on_both(hosts, "-m", "mpi4py", SCRIPTS / "snapshot_hosts.py", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{hosts}-2" in done.stdout.split()
    assert len(done.stdout.split()) == 2


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*frames:")
def test_files_that_two_hosts_write_have_the_bytes_of_one_process(hosts, adk_in_water, tmp_path):
    """Check that rank 0 writes blocks of the other host that share a page with others."""
    content = Path(adk_in_water.trajectory).read_bytes()
    (tmp_path / "md.xtc").write_bytes(content * 6)
    paceline.Write(paceline.open(tmp_path / "md.xtc"), tmp_path / "md.trr").run()
    paceline.Write(paceline.open(tmp_path / "md.xtc"), tmp_path / "md.dcd").run()
    arguments = [SCRIPTS / "files.py", tmp_path, tmp_path / "out", "md.xtc", "md.trr", "md.dcd"]
    found = []
    for on_hosts in (False, True):
        (tmp_path / "out").mkdir()
        if on_hosts:
            done = on_both(hosts, "-m", "paceline.mpi", *arguments)
            assert (done.returncode, done.stderr) == (0, "")
        else:
            subprocess.run([sys.executable, "-W", "ignore", *map(str, arguments)], check=True)
        files = (path for path in (tmp_path / "out").iterdir() if path.name[0] != ".")
        found.append({path.name: path.read_bytes() for path in files})
        shutil.rmtree(tmp_path / "out")
    assert found[0].keys() == found[1].keys()
    assert [name for name in found[0] if found[0][name] != found[1][name]] == []
