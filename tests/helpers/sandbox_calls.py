"""Functions that tests call in the process that opens HDF5 files."""

import os
import signal
from pathlib import Path

from paceline.errors import UnsupportedError


def hang(path, options=None):
    while True:
        pass


def hang_visibly(path, options=None):
    """Hang, after creating a file `hanging` next to `path`."""
    Path(path).with_name("hanging").touch()
    hang(path)


def crash(path):
    os.kill(os.getpid(), signal.SIGSEGV)


def fill_memory(path, n_bytes):
    return len(bytearray(n_bytes))


def end(path):
    os._exit(3)


def pid(path):
    return os.getpid()


def printed(path):
    print("not an answer")
    os.write(1, b"neither")
    return path


class Killing:
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)


def break_off(path):
    """Exit in the middle of an answer, after much of it was sent."""
    return [bytes(1 << 20), Killing()]


def answer_with_a_lambda(path):
    return lambda: path


class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)
        self.args = ("one and two",)

    def __repr__(self):
        return "Odd('one', 'two')"


def fail_in_two_words(path):
    raise Odd("one", "two")


def fail(path):
    raise UnsupportedError(f"{path}: of no use")
