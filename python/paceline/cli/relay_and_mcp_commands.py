"""Commands that serve other programs: relay, schema and mcp."""

import argparse
import json
import sys
from pathlib import Path

from paceline._util.os_calls import WINDOWS
from paceline.cli.options import positive, seconds, size
from paceline.cli.parser_and_file_arguments import CommandParser, Commands
from paceline.errors import UnsupportedError
from paceline.performance.number_format import many

RELAY_EXAMPLES = """\
examples:
  paceline relay imd://localhost:8888 --listen 8890
  paceline relay imd://node12:8888 --listen 0.0.0.0:8890 --subscribers 2 --wait 60s
"""


SCHEMA_EXAMPLES = """\
examples:
  paceline schema > paceline.schema.json
  paceline schema rmsd
"""

MCP_EXAMPLES = """\
examples:
  paceline mcp --folder ~/simulations
  paceline mcp --folder ~/simulations --tools info rmsd battery
  paceline mcp --folder . --stores
"""


def endpoint(text: str) -> tuple[str, int]:
    """Convert PORT or HOST:PORT to host and port; the default host is this machine.

    Examples
    --------
    >>> endpoint("8890"), endpoint("0.0.0.0:8890"), endpoint("[::1]:8890")
    (('127.0.0.1', 8890), ('0.0.0.0', 8890), ('::1', 8890))
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise argparse.ArgumentTypeError(
            f"expected a port from 0 to 65535, or HOST:PORT, found {text!r}"
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def add_relay(commands: Commands) -> CommandParser:
    """Add the command `relay` and its arguments."""
    parser = commands.add_parser(
        "relay",
        help="pass on the frames of a running simulation to several programs",
        description="Connect to a simulation that sends its frames by IMD (fix imd of LAMMPS, "
        "NAMD, GROMACS), and send the frames to any number of programs by IMD version 3, such as "
        "paceline, MDAnalysis and VMD. An engine itself serves one program only. The simulation "
        "never waits for these programs: a program that reads too slowly misses frames. Numbers "
        "are passed on in the units in which the engine sends them.",
        epilog=RELAY_EXAMPLES,
    )
    add = parser.section("files").add_argument
    add("engine", metavar="imd://HOST:PORT", help="address of the simulation [port 8888]")
    add = parser.section("other options").add_argument
    add(
        "--listen",
        type=endpoint,
        required=True,
        metavar="[HOST:]PORT",
        help="port to which programs connect; only programs of this machine, unless a host or "
        "0.0.0.0 is given",
    )
    add(
        "--subscribers",
        type=positive,
        default=0,
        metavar="N",
        help="connect to the simulation when N programs are connected, so that they receive every "
        "frame [at once]",
    )
    add("--atoms", type=positive, metavar="N", help="number of atoms [that of the first frame]")
    add(
        "--buffer",
        type=size,
        metavar="SIZE",
        help="frames that wait for one program, such as 200MB [64 MiB]",
    )
    add(
        "--wait",
        type=seconds,
        default=0.0,
        metavar="T",
        help="time in which the simulation may start, such as 60s [%(default)gs]",
    )
    add(
        "--timeout",
        type=seconds,
        default=60.0,
        metavar="T",
        help="maximum time between frames, such as 600s [%(default)gs]",
    )
    parser.set_defaults(run=run_relay)
    return parser


def run_relay(args: argparse.Namespace) -> None:
    """Run the command `relay`."""
    from paceline.trajectory.imd_protocol import host_and_port, parse_address
    from paceline.trajectory.imd_relay import BUFFER, StreamRelay

    host, port = args.listen
    if parse_address(args.engine) == ("localhost" if host == "127.0.0.1" else host, port):
        raise UnsupportedError(f"--listen {port} is the port of the simulation: give another one")
    relay = StreamRelay(
        args.engine,
        host=host,
        port=port,
        n_atoms=args.atoms,
        n_subscribers=args.subscribers,
        buffer=args.buffer or BUFFER,
        timeout=args.timeout,
        wait=args.wait,
    )
    try:
        with relay:
            _say(f"programs connect to imd://{host_and_port(host, relay.port)}")
            stream = relay.connect()
            fields = ", ".join(stream.session.fields) or "no fields"
            _say(f"{args.engine}: version {stream.session.version}, {fields}")
            relay.run()
    finally:
        _say(f"{args.engine}: {many(relay.n_frames, 'frame')} received")
        for one in relay.served:
            _say(f"{one.name}: {many(one.n_sent, 'frame')} sent, {one.n_skipped} skipped")


def _say(text: str) -> None:
    """Print a line with the prefix "paceline:" on stderr at once."""
    print(f"paceline: {text}", file=sys.stderr, flush=True)


def add_schema(commands: Commands) -> CommandParser:
    """Add the command `schema` and its arguments."""
    parser = commands.add_parser(
        "schema",
        help="print the JSON Schema of what commands print with --json",
        description="Print the JSON Schema (draft 2020-12) of the documents that commands print "
        "with --json, of their errors, and of the lines of --progress json. The manual describes "
        "when its version changes.",
        epilog=SCHEMA_EXAMPLES,
    )
    parser.usage = "%(prog)s [options] [COMMAND]"
    parser.section("files").add_argument(
        "name", nargs="?", metavar="COMMAND", help="only the document of this command [all]"
    )
    parser.set_defaults(run=run_schema)
    return parser


def run_schema(args: argparse.Namespace) -> None:
    """Run the command `schema`."""
    from paceline.cli.json_output_schema import schema_of
    from paceline.cli.mcp_tools import documents

    found = documents()
    if args.name is not None:
        if args.name not in found:
            raise UnsupportedError(
                f"{args.name}: expected a command with --json: {', '.join(found)}"
            )
        found = {args.name: found[args.name]}
    print(json.dumps(schema_of(found), indent=1))


def add_mcp(commands: Commands) -> CommandParser:
    """Add the command `mcp` and its arguments."""
    parser = commands.add_parser(
        "mcp",
        help="serve the commands as tools for assistants (MCP)",
        description="Serve the commands as tools by the Model Context Protocol, on standard input "
        "and output, for an assistant that starts this command. Files outside of the folder are "
        "neither read nor written. Tools are made from the commands; their results are the "
        "documents that the commands print with --json. Long commands continue in the background.",
        epilog=MCP_EXAMPLES,
    )
    parser.usage = "%(prog)s --folder FOLDER [options]"
    add = parser.section("files").add_argument
    add(
        "--folder",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder of all files; paths are relative to it",
    )
    add("--stores", action="store_true", help="allow trajectories at s3://, https:// and so on")
    add = parser.section("other options").add_argument
    add("--tools", nargs="+", metavar="COMMAND", help="only these commands [all with --json]")
    add(
        "--wait",
        type=seconds,
        default=45.0,
        metavar="TIME",
        help="time after which the answer to a call is the number of a job that continues [45s]",
    )
    add("--jobs", type=positive, default=2, metavar="N", help="jobs at a time [%(default)s]")
    parser.set_defaults(run=run_mcp)
    return parser


def run_mcp(args: argparse.Namespace) -> None:
    """Run the command `mcp`."""
    if not args.folder.is_dir():
        raise UnsupportedError(f"--folder {args.folder}: expected a folder that exists")
    if WINDOWS:
        raise UnsupportedError("paceline mcp needs Linux or macOS: it ends jobs by signals")
    try:
        import mcp  # noqa: F401
    except ImportError:
        raise UnsupportedError(
            "paceline mcp needs the package mcp, version 2 or newer: pip install paceline[mcp]"
        ) from None
    from paceline.cli.mcp_server import serve
    from paceline.cli.mcp_tools import tools

    serve(
        args.folder,
        tools(args.tools),
        stores=args.stores,
        wait=args.wait,
        most_jobs=args.jobs,
    )


PARSERS = {"relay": add_relay, "schema": add_schema, "mcp": add_mcp}
