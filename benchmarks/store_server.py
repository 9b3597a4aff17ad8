"""Serve a folder like an object store that is far away: requests wait, and some of them fail."""

import contextlib
import math
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

#: Bytes that are sent with one call, without and with a limited rate.
_CALL, _PACKET = 4 << 20, 64 << 10
#: Number of keys that are listed together, as by S3.
_PAGE = 1000


class _Wire:
    """Connection that all responses share."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        #: Bytes that are sent with one call.
        self.call = _CALL if math.isinf(rate) else _PACKET
        self._free = time.monotonic()
        self._lock = threading.Lock()

    def wait(self, n_bytes: int) -> None:
        """Wait until these bytes have been sent, after those of other responses."""
        with self._lock:
            self._free = max(self._free, time.monotonic()) + n_bytes / self._rate
            free = self._free
        time.sleep(max(0.0, free - time.monotonic()))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path
    latency: float
    jitter: float
    error_rate: float
    wire: "_Wire"

    def log_message(self, *args: object) -> None:
        """Print nothing."""

    def _answer(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in {"Content_Length": 0, **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def do_HEAD(self) -> None:
        """Answer like GET, without a body."""
        self.do_GET()

    def do_GET(self) -> None:
        """Send a file or a part of it, after the latency."""
        time.sleep(self.latency + random.uniform(0, self.jitter))
        if random.random() < self.error_rate:
            return self._answer(503)
        url = urlsplit(self.path)
        path = self.folder / unquote(url.path).lstrip("/")
        if "list-type=2" in url.query:
            return self._list(path, parse_qs(url.query))
        if not path.is_file():
            return self._answer(404)
        found = path.stat()
        size, tag = found.st_size, f'"{found.st_mtime_ns:x}-{found.st_size:x}"'
        if self.headers["If-Match"] not in (None, tag):
            return self._answer(412)
        first, end, wanted = 0, size, self.headers["Range"]
        headers = {"ETag": tag, "Last_Modified": self.date_time_string(int(found.st_mtime))}
        if wanted is not None:
            left, right = wanted.removeprefix("bytes=").split("-")
            first, end = int(left), min(int(right or size) + 1, size)
            if first >= size:
                return self._answer(416)
            headers["Content_Range"] = f"bytes {first}-{end - 1}/{size}"
        self._answer(200 if wanted is None else 206, **headers, Content_Length=end - first)
        if self.command == "HEAD":
            return None
        self.wfile.flush()
        with path.open("rb") as file:
            while first < end:
                n_bytes = min(self.wire.call, end - first)
                self.wire.wait(n_bytes)
                first += os.sendfile(self.connection.fileno(), file.fileno(), first, n_bytes)
        return None

    def _list(self, bucket: Path, query: dict[str, list[str]]) -> None:
        """List the files of a folder like the keys of a bucket, a page at a time."""
        prefix, first = query.get("prefix", [""])[0], int(query.get("continuation-token", ["0"])[0])
        keys = sorted(key for key in os.listdir(bucket) if key.startswith(prefix))
        text = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-29T02:00:00.000Z"
            f"</LastModified><Size>{(bucket / key).stat().st_size}</Size></Contents>"
            for key in keys[first : first + _PAGE]
        )
        if first + _PAGE < len(keys):
            text += f"<NextContinuationToken>{first + _PAGE}</NextContinuationToken>"
        body = f"<ListBucketResult>{text}</ListBucketResult>".encode()
        self._answer(200, Content_Length=len(body))
        self.wfile.write(body)


def serve(folder: str, latency: str, jitter: str, error_rate: str, rate: str) -> None:
    """Serve until the process is ended; print the port."""
    settings = {"latency": latency, "jitter": jitter, "error_rate": error_rate}
    numbers = {name: float(value) for name, value in settings.items()}
    own = {"folder": Path(folder), "wire": _Wire(float(rate))}
    handler = type("Handler", (_Handler,), {**own, **numbers})

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

        def handle_error(self, *_: object) -> None:
            """Print nothing when a client ends a connection."""

    server = Server(("127.0.0.1", 0), handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


@contextlib.contextmanager
def store_server(
    folder: Path,
    *,
    latency: float = 0.08,
    jitter: float = 0.02,
    error_rate: float = 0.0,
    rate: float = math.inf,
) -> Iterator[str]:
    """Serve a folder from another process; yield the address. Times are in seconds.

    A response begins `latency` to `latency + jitter` after its request; a fraction `error_rate` of
    all requests is answered with status 503. All responses together get `rate` bytes per second.
    """
    numbers = (latency, jitter, error_rate, rate)
    command = [sys.executable, "-m", "benchmarks.store_server", str(folder), *map(str, numbers)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        serve(*sys.argv[1:])
