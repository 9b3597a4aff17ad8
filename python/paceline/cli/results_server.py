"""HTTP server of the files that a command writes while it follows a simulation."""

import contextlib
import errno
import os
import shutil
import socket
import socketserver
import stat
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import BinaryIO, Self
from urllib.parse import quote, unquote, urlsplit

from paceline._util.os_calls import NO_LINK
from paceline.errors import UnsupportedError
from paceline.performance.analysis_results_page import PageState, live_page
from paceline.performance.html_elements import Html, element

INDEX = "index.html"
#: Content types of the files that commands write. Other files are sent as plain bytes.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".tsv": "text/tab-separated-values; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".pdf": "application/pdf",
    **dict.fromkeys((".toml", ".xvg", ".pdb", ".gro", ".xyz"), "text/plain; charset=utf-8"),
}
#: Filename extensions of images that a page can show.
IMAGES = (".png", ".svg")
#: Time after which a client that sends or reads nothing is disconnected, s.
CLIENT_SECONDS = 10.0
#: At its end, the command waits until a browser that shows the page has received its last version.
#: It waits at most this many times the interval between two requests, plus one second.
LAST_LOOKS = 2.0


class ResultsServer:
    """Read-only HTTP server of some files, in a thread of its own.

    It answers GET and HEAD for the names of these files only, and never follows links. `/` and
    `/index.html` are the page. If no file is called index.html, or it does not exist yet, the
    server makes a page with the figures and links to all files.

    Parameters
    ----------
    host : str
        Name or address of this machine on which the server listens.
    port : int
        Port; 0 for any free one.
    files : mapping of str to Path
        Files by name.
    title : str
        Title of the page that the server makes.
    every : float
        Time between two requests of the page for new results, s.

    Raises
    ------
    UnsupportedError
        Another program listens on the port, or the address does not belong to this machine.
    """

    def __init__(
        self, host: str, port: int, files: Mapping[str, Path], *, title: str, every: float
    ):
        self.files, self._title, self._every = files, title, every
        self._begun = time.time()
        self.is_over = False
        #: Time of the latest request for the page, and the event that the last page was sent.
        self._asked = -float("inf")
        self._sent = threading.Event()
        self._server = _listening(host, port, self)
        self.port: int = self._server.server_address[1]
        name = f"[{host}]" if ":" in host else host
        self.address = f"http://{name}:{self.port}/"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._await_reader()
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def _await_reader(self) -> None:
        """Wait a short time until a browser that shows the page has received its last version."""
        self.is_over = True
        patience = LAST_LOOKS * self._every + 1
        if time.monotonic() - self._asked < patience:
            with contextlib.suppress(KeyboardInterrupt):  # all files are written
                self._sent.wait(patience)

    def page_asked(self) -> bool:
        """Record that a client requests the page; return True if it gets the last version."""
        self._asked = time.monotonic()
        return self.is_over

    def last_page_sent(self) -> None:
        """Record that a client has received the last version of the page."""
        self._sent.set()

    def page(self) -> bytes:
        """Make the page with the figures and links to all files.

        The page reloads itself until the run is over.
        """
        changed = [
            path.stat().st_mtime
            for path in self.files.values()
            if path.name != INDEX and path.exists()
        ]
        parts = []
        for name, path in self.files.items():
            if path.exists() and path.suffix.lower() in IMAGES:
                mark = f"?{path.stat().st_mtime_ns}"  # changes with the file: browsers cache images
                parts.append(
                    element("figure", Html(f'<img src="{quote(name)}{mark}" alt="{quote(name)}">'))
                )
        links = [element("a", name, href=quote(name)) for name in self.files if name != INDEX]
        state = None
        if not self.is_over:
            text = (
                "Followed while the simulation runs" if changed else "Waiting for the first results"
            )
            state = PageState(text, self._every, written=max(changed, default=self._begun))
        body = [*parts, element("p", *links, class_="files")] if changed else []
        return live_page(self._title, body, state).encode()


def _listening(host: str, port: int, results: ResultsServer) -> "_Server":
    """Create the server that listens at an address; raise `UnsupportedError` if that fails."""
    where = f"--serve {host}:{port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _Server(family, address, results)
    except socket.gaierror as error:
        raise UnsupportedError(f"{where}: there is no address {host!r}: {error.strerror}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            reason = "another program listens on this port: choose another one, or 0 for a free one"
        elif error.errno == errno.EACCES:
            reason = "the port is reserved: choose one above 1023, or 0 for a free one"
        else:
            reason = f"{error.strerror}: choose an address of this machine"
        raise UnsupportedError(f"{where}: {reason}") from None


class _Server(socketserver.ThreadingTCPServer):
    """Server with one thread per request."""

    daemon_threads = True
    # On Windows, this option would allow two servers on one port.
    allow_reuse_address = os.name == "posix"

    def __init__(self, family: int, address: object, results: ResultsServer):
        self.address_family = family
        self.results = results
        super().__init__(address, _Handler)  # type: ignore[arg-type]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that has disconnected."""


class _Handler(BaseHTTPRequestHandler):
    """Handler of one request, which sends a file or the page."""

    timeout = CLIENT_SECONDS
    server_version, sys_version = "paceline", ""
    server: _Server

    def do_GET(self) -> None:
        """Send a file with its headers."""
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        """Send the headers of a file."""
        self._answer(has_body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: stderr is for the messages of the command."""

    def _answer(self, *, has_body: bool) -> None:
        results = self.server.results
        name = unquote(urlsplit(self.path).path.removeprefix("/")) or INDEX
        # Call this before the file is opened: a file that was opened before the end of the run may
        # contain an earlier version of the page.
        is_last = name == INDEX and has_body and results.page_asked()
        with contextlib.ExitStack() as stack:
            file = _opened(results.files.get(name))
            if file is not None:
                stack.enter_context(file)
                self._send_head(name, os.fstat(file.fileno()).st_size)
                if has_body:
                    shutil.copyfileobj(file, self.wfile)
            elif name == INDEX:
                page = results.page()
                self._send_head(name, len(page))
                if has_body:
                    self.wfile.write(page)
            else:
                self.send_error(HTTPStatus.NOT_FOUND, "There is no such file")
                return
        if is_last:
            results.last_page_sent()

    def _send_head(self, name: str, n_bytes: int) -> None:
        self.send_response(HTTPStatus.OK)
        kind = TYPES.get(Path(name).suffix.lower(), "application/octet-stream")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", f"{n_bytes}")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()


def _opened(path: Path | None) -> BinaryIO | None:
    """Open a regular file; None if there is none, or if it is a link."""
    if path is None:
        return None
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # opening a pipe would block
            return None
        return os.fdopen(os.open(path, os.O_RDONLY | NO_LINK), "rb")
    except OSError:
        return None
