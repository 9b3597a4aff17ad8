"""Sandbox for the HDF5 library: another process, because a damaged file can crash or hang it.

A test used 2,900 small files with a few randomly changed bytes of metadata: HDF5 2.0 crashed on one
file, and did not finish reading 13 others. The most frequent cause was one byte of a global heap,
in which HDF5 stores text. HDF5 can be ended in such a case only if it runs in a separate process.
One helper process serves all files that a process opens. It starts with the first file, and ends a
minute after the last request.

On Windows, which has no limits of this kind, the HDF5 library is called in the calling process.
"""

import contextlib
import gc
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from paceline._util.files import check_local, is_address, is_confined, store_settings
from paceline._util.os_calls import (
    CAN_LIMIT,
    after_fork,
    end_when_closed,
    exit_reason,
    extend_limit,
    has_input,
    limit_memory,
    limit_time,
)
from paceline.errors import DamagedFileError, WorkerError

#: Maximum CPU time per request, seconds: a hundred times the usual time. `extend_time_limit` adds
#: time for large files.
TIME_LIMIT = 5.0
#: Maximum wall time as a multiple of the maximum CPU time: storage may be slow, but must not hang.
_WAITING = 24.0
#: Maximum wall time for an object in an object store, as a multiple of the maximum CPU time. It is
#: longer than for a file, because failed requests are repeated.
_WAITING_FOR_STORE = 240.0
#: Maximum memory of a helper that reads an object, bytes.
_ROOM_FOR_OBJECT = 1 << 36
#: Constant part of the maximum memory of a request, bytes.
_ROOM = 1 << 30
#: Additional memory per byte of the file: the maximum number of bytes that deflate makes of one.
_ROOM_PER_BYTE = 1032
#: Time without a request after which the helper ends, seconds.
_IDLE = 60.0
#: Format of the length before each answer, by which truncated answers are recognised.
_LENGTH = struct.Struct("<Q")
#: Prefixes of environment variables by which an MPI launcher turns a program into a rank.
_LAUNCHER_PREFIXES = ("PMI_", "PMIX_", "OMPI_", "MV2_", "SLURM_PROCID")

#: Python program of the helper process; its argument is the descriptor of the pipe `_lifeline`.
HELPER = "import sys; from paceline.hdf5.sandbox import serve; serve(int(sys.argv[1]))"


def run_in_sandbox(function: Callable[..., object], path: str, **options: object) -> Any:
    """Call `function(path, **options)` in the helper process; return its result or raise its error.

    Raises `DamagedFileError` if the file crashed the helper or exceeded the time limit, and
    `UnsupportedError` if this process may not use the file. Raises `WorkerError` if the helper
    cannot be started, if another program ended it, or if an answer cannot be pickled.

    >>> run_in_sandbox(os.path.basename, "md.h5md")
    'md.h5md'
    """
    if is_confined() and not is_address(path):
        check_local(path)
    if not CAN_LIMIT:
        return _call(function, path, options)
    # Send the working directory: the helper may have been started in another one.
    folder = None if os.path.isabs(path) or is_address(path) else os.getcwd()
    done, value = _helper.ask(pickle.dumps((function, path, options, TIME_LIMIT, folder)), path)
    if done:
        return value
    raise value


def interrupt() -> None:
    """End the helper immediately; threads that wait for it get a `WorkerError`.

    Ctrl-C interrupts only the main thread, which may be waiting for one of these threads.
    """
    _helper.kill()


def extend_time_limit(seconds: float) -> None:
    """Add to the helper's CPU time limit for its file; do nothing in other processes."""
    if _serving:
        extend_limit(seconds, _WAITING * seconds)


class _Helper:
    """Client that starts the helper process, and exchanges requests and answers with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        #: Settings of object stores with which the helper process was started.
        self._settings: dict[str, str] = {}
        #: Pipe that closes when this process ends, upon which the helper ends, too.
        self._lifeline: IO[bytes] | None = None

    def ask(self, request: bytes, path: str) -> tuple[bool, Any]:
        """Send a request; return (True, the result) or (False, the error)."""
        with self._lock:
            try:
                if self._process and is_address(path) and self._settings != store_settings():
                    self.end()
                for _ in range(2):
                    process = self._process or self._start()
                    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
                        return self._exchange(process, request)
                    # An idle helper may have ended before it got the request: start another one.
                    if (status := self._wait_for_exit(process)) != 0:
                        raise _error_of(status, path)
            except BaseException:
                self.end()
                raise
        raise WorkerError(f"{path}: the helper process that opens HDF5 files ends immediately")

    def _start(self) -> "subprocess.Popen[bytes]":
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_LAUNCHER_PREFIXES)
        }
        # The helper must find modules in the folders of this process. With -P, it does not search
        # the working directory first.
        self._settings = store_settings()
        environment["PYTHONPATH"] = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        end, lifeline = os.pipe()
        self._lifeline = os.fdopen(lifeline, "wb")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", HELPER, str(end)],
                pass_fds=(end,),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                # The calling process handles Ctrl-C, even while the helper starts.
                process_group=0,
            )
        except OSError as error:
            raise WorkerError(
                f"the helper process that opens HDF5 files cannot be started: {error}"
            ) from error
        finally:
            os.close(end)
        return self._process

    @staticmethod
    def _exchange(process: "subprocess.Popen[bytes]", request: bytes) -> tuple[bool, object]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        process.stdin.flush()
        (length,) = _LENGTH.unpack(_read_exactly(process.stdout, _LENGTH.size))
        return pickle.loads(_read_exactly(process.stdout, length))

    def _wait_for_exit(self, process: "subprocess.Popen[bytes]") -> int:
        """Wait for a helper that sent no answer or a truncated one; return its exit status."""
        status = process.wait()
        self._forget()
        return status

    def kill(self) -> None:
        """Kill the helper; the thread that waits for its answer closes the pipes."""
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """Kill the helper, wait for its end, and close the pipes to it."""
        self.kill()
        if self._process is not None:
            self._process.wait()
            self._forget()

    def _forget(self) -> None:
        process, self._process = self._process, None
        pipes = (process.stdin, process.stdout, self._lifeline) if process else ()
        for pipe in pipes:
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


def _read_exactly(pipe: IO[bytes], n_bytes: int) -> bytes:
    """Read a number of bytes; raise `EOFError` if fewer arrive."""
    found = pipe.read(n_bytes)
    if len(found) < n_bytes:
        raise EOFError
    return found


def _error_of(status: int, path: str) -> Exception:
    """Create the error for a helper that ended with this status while it processed a file."""
    why = exit_reason(status)
    if why == "computing":
        found = "one that keeps HDF5's library busy without end"
    elif why == "waiting":
        found = (
            f"one for which HDF5's library waits {_WAITING * TIME_LIMIT:.0f} s: its storage does "
            "not answer, or it refers to a file without data, such as a pipe"
        )
    elif why == "ended":
        return WorkerError(
            f"{path}: the helper process that opened it was ended (status {status}), perhaps "
            "because "
            "memory ran out"
        )
    else:
        found = f"one that crashes HDF5's library ({why})"
    error = DamagedFileError(f"{path}: expected an HDF5 file, found {found}")
    error.path, error.frame, error.offset = path, None, None
    error.expected, error.found = "an HDF5 file", found
    return error


_helper = _Helper()
_serving = False


def _in_child() -> None:
    """Detach a forked process from the helper of its parent process."""
    global _helper
    if _helper._lifeline is not None:
        _helper._lifeline.close()
    _helper = _Helper()


after_fork(_in_child)


def serve(lifeline: int) -> None:
    """Answer requests until none comes for some time: the main function of the helper."""
    global _serving
    _serving = True
    end_when_closed(lifeline)
    requests = sys.stdin.buffer
    # Standard output is redirected, because libraries print to it, for example the LZ4 filter
    # for each damaged chunk.
    with os.fdopen(os.dup(1), "wb") as answers, open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        while has_input(requests, _IDLE):
            try:
                function, path, options, limit, folder = pickle.load(requests)
            except EOFError:
                return
            if folder is not None:
                with contextlib.suppress(OSError):  # opening the file then raises the error
                    os.chdir(folder)
            with contextlib.suppress(OSError):
                limit_memory(_memory_for(path))
            limit_time(limit, (_WAITING_FOR_STORE if is_address(path) else _WAITING) * limit)
            try:
                answer = True, _call(function, path, options)
            except Exception as error:
                answer = False, error
            limit_time(0, 0)
            packed = _pack_answer(answer, path)
            answers.write(_LENGTH.pack(len(packed)))
            answers.write(packed)
            answers.flush()
            del answer
            if _files_are_open():
                return


def _memory_for(path: str) -> int:
    """Return the maximum memory of a request, bytes."""
    if is_address(path):
        return _ROOM_FOR_OBJECT
    return _ROOM + _ROOM_PER_BYTE * os.path.getsize(path)


def _call(function: Callable[..., object], path: str, options: dict[str, object]) -> Any:
    """Call a function; report a lack of memory as damage of the file, by `DamagedFileError`."""
    try:
        return function(path, **options)
    except MemoryError:
        found = "one that needs more memory than its size can explain"
        raise DamagedFileError.in_object(path, "", "an HDF5 file", found) from None


def _files_are_open() -> bool:
    """Check whether a request has left a file open that cannot be closed.

    In that case, HDF5 would not read a new file at the same path, but the old one from memory.
    """
    h5py = sys.modules.get("h5py")
    if h5py is None or not _n_open(h5py):
        return False
    gc.collect()  # an error may contain a reference to the file's reader
    return _n_open(h5py) > 0


def _n_open(h5py: Any) -> int:
    return int(h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE))


def _pack_answer(answer: tuple[bool, object], path: str) -> bytes:
    """Pickle an answer; if this fails, pickle an error that gives the reason."""
    try:
        packed = pickle.dumps(answer, protocol=5)
        if not answer[0]:
            # Some errors cannot be unpickled, because pickle calls their classes with the text as
            # the only argument.
            pickle.loads(packed)
        return packed
    except Exception as error:
        what = "the result" if answer[0] else f"the error {answer[1]!r}"
        reason = f"{type(error).__name__}: {error}"
        refusal = WorkerError(f"{path}: {what} cannot be sent by the helper process: {reason}")
        return pickle.dumps((False, refusal), protocol=5)
