"""HDF5's library asked in a process of its own, for a damaged file can crash it or keep it busy.

Of 2,900 small files in which a few bytes of the metadata were changed at random, HDF5 2.0 crashed
with one and never returned from 13, most often because of one byte of a global heap, where HDF5
keeps text. What a program cannot interrupt, only another process can end. One helper serves all
files that a process opens: it starts with the first, and ends a minute after the last.
"""

import contextlib
import fcntl
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from paceline.errors import DamagedFileError, WorkerError

#: Seconds of computing that a file may take, whatever its size: a hundred times what most take.
PATIENCE = 5.0
#: Seconds that may pass for each of computing: storage may be slow, but must not wait for ever.
_WAITING = 24.0
#: Seconds after which a helper that nobody asks for anything ends.
_IDLE = 60.0
#: Before an answer stands the number of its bytes.
_LENGTH = struct.Struct("<Q")
#: How variables begin that tell a program that a launcher of MPI started it.
_OF_LAUNCHERS = ("PMI_", "PMIX_", "OMPI_", "MV2_", "SLURM_PROCID")

_HELPER = "import sys; from paceline.hdf5.sandbox import serve; serve(int(sys.argv[1]))"


def apart(function: Callable[..., Any], path: str, **options: Any) -> Any:
    """What a function makes of a file, called in another process.

    Parameters
    ----------
    function : callable
        Of a module; its first argument is the path.
    path : str
        The file.
    **options
        Further arguments.

    Returns
    -------
    object
        What it returns.

    Raises
    ------
    DamagedFileError
        The file crashed the other process, or kept it busy or waiting beyond all reason.
    WorkerError
        The other process cannot be started, or somebody ended it, or what the function made of the
        file cannot travel.
    Exception
        What the function raised.

    Examples
    --------
    >>> apart(os.path.basename, "md.h5md")
    'md.h5md'
    """
    done, value = _helper.ask(pickle.dumps((function, path, options, PATIENCE)), path)
    if done:
        return value
    raise value


def interrupt() -> None:
    """End the other process, whatever it does: threads that wait for it get a `WorkerError`.

    Ctrl-C interrupts no thread but the first, which may itself wait for one that asks.
    """
    _helper.kill()


def allow(seconds: float) -> None:
    """Let the file that this process serves take longer: it has much to be read.

    Parameters
    ----------
    seconds : float
        Of computing, added to those that are left. Nothing happens outside of a helper.
    """
    for timer, share in _TIMERS if _serving else ():
        left, _ = signal.getitimer(timer)
        if left:
            signal.setitimer(timer, left + share * seconds)


#: What limits a call, and seconds of it for each of computing.
_TIMERS = ((signal.ITIMER_PROF, 1.0), (signal.ITIMER_REAL, _WAITING))


class _Helper:
    """The other process, seen from here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        #: Closes with this process, however that ends, and the helper with it.
        self._lifeline: IO[bytes] | None = None

    def ask(self, request: bytes, path: str) -> tuple[bool, Any]:
        """Whether the function returned, and what; or the error that it raised."""
        with self._lock:
            try:
                for _ in range(2):
                    process = self._process or self._start()
                    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
                        return self._exchange(process, request)
                    # One that ends of its own accord did so before it was asked.
                    if (status := self._ended(process)) != 0:
                        raise _error_of(status, path)
            except BaseException:
                self.end()
                raise
        raise WorkerError(f"{path}: the process that was to open it ends at once")

    def _start(self) -> "subprocess.Popen[bytes]":
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(_OF_LAUNCHERS)
        }
        # Modules are found where this process finds them: -P keeps the working directory, whatever
        # it holds, from standing before them.
        environment["PYTHONPATH"] = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        end, lifeline = os.pipe()
        self._lifeline = os.fdopen(lifeline, "wb")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _HELPER, str(end)],
                pass_fds=(end,),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                # Ctrl-C is for the one that asks, also while this one starts.
                process_group=0,
            )
        except OSError as error:
            raise WorkerError(
                f"no process can be started that opens HDF5 files: {error}"
            ) from error
        finally:
            os.close(end)
        return self._process

    @staticmethod
    def _exchange(process: "subprocess.Popen[bytes]", request: bytes) -> tuple[bool, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        process.stdin.flush()
        (length,) = _LENGTH.unpack(_exactly(process.stdout, _LENGTH.size))
        return pickle.loads(_exactly(process.stdout, length))

    def _ended(self, process: "subprocess.Popen[bytes]") -> int:
        """Status of one whose answer ended early."""
        status = process.wait()
        self._forget()
        return status

    def kill(self) -> None:
        """Let whoever waits for it wait no longer, and see to the rest."""
        process = self._process
        if process is not None:
            process.kill()

    def end(self) -> None:
        """End it, whatever it does."""
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


def _exactly(pipe: IO[bytes], n_bytes: int) -> bytes:
    """So many bytes; `EOFError` where whoever writes them ends in the middle."""
    found = pipe.read(n_bytes)
    if len(found) < n_bytes:
        raise EOFError
    return found


def _error_of(status: int, path: str) -> Exception:
    """What the end of a helper says of the file that it was to open."""
    if status == -signal.SIGPROF:
        found = "one that keeps HDF5's library busy without end"
    elif status == -signal.SIGALRM:
        found = (
            f"one for which HDF5's library waits {_WAITING * PATIENCE:.0f} s: its storage does not "
            "answer, or it leads into a file, such as a pipe, that gives nothing"
        )
    elif status in (-signal.SIGKILL, -signal.SIGTERM) or status > 0:
        return WorkerError(
            f"{path}: the process that was to open it was ended (status {status}), perhaps because "
            "memory ran out"
        )
    else:
        found = f"one that crashes HDF5's library ({signal.Signals(-status).name})"
    error = DamagedFileError(f"{path}: expected an HDF5 file, found {found}")
    error.path, error.frame, error.offset = path, None, 0
    error.expected, error.found = "an HDF5 file", found
    return error


_helper = _Helper()
_serving = False


def _in_child() -> None:
    """A forked process has no share in its parent's helper."""
    global _helper
    if _helper._lifeline is not None:
        _helper._lifeline.close()
    _helper = _Helper()


os.register_at_fork(after_in_child=_in_child)


def _end_with(lifeline: int) -> None:
    """End this process, even inside of a library, when the other end of a pipe closes."""
    # Whoever starts this process may ignore signals, or block them, and hand that down.
    limits = (signal.SIGIO, signal.SIGPROF, signal.SIGALRM)
    for number in limits:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, limits)
    # The signal for a pipe in which something happens ends whoever does not handle it.
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:  # it closed before
        os.kill(os.getpid(), signal.SIGKILL)


def serve(lifeline: int) -> None:
    """Answer one request after another, until nobody asks for a while."""
    global _serving
    _serving = True
    _end_with(lifeline)
    requests = sys.stdin.buffer
    # Whatever libraries print must not get among the answers.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        while select.select([requests], [], [], _IDLE)[0]:
            try:
                function, path, options, patience = pickle.load(requests)
            except EOFError:
                return
            for timer, share in _TIMERS:
                signal.setitimer(timer, share * patience)
            try:
                answer = True, function(path, **options)
            except Exception as error:
                answer = False, error
            for timer, _ in _TIMERS:
                signal.setitimer(timer, 0)
            packed = _packed(answer, path)
            answers.write(_LENGTH.pack(len(packed)))
            answers.write(packed)
            answers.flush()


def _packed(answer: tuple[bool, Any], path: str) -> bytes:
    """An answer on its way, or an error that says why it cannot travel."""
    try:
        packed = pickle.dumps(answer, protocol=5)
        if not answer[0]:
            # Errors may leave and not arrive: pickle calls their classes with their text alone.
            pickle.loads(packed)
        return packed
    except Exception as error:
        what = "what was found" if answer[0] else f"the error {answer[1]!r}"
        reason = f"{type(error).__name__}: {error}"
        refusal = WorkerError(f"{path}: {what} cannot leave the process that opened it: {reason}")
        return pickle.dumps((False, refusal), protocol=5)
