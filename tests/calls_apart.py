"""What the process that opens HDF5 files is asked to do in tests."""

import os
import signal

from paceline.errors import UnsupportedError


def hang(path, asked=None):
    while True:
        pass


def crash(path):
    os.kill(os.getpid(), signal.SIGSEGV)


def end(path):
    os._exit(3)


def pid(path):
    return os.getpid()


def printed(path):
    print("not an answer")
    os.write(1, b"neither")
    return path


def fail(path):
    raise UnsupportedError(f"{path}: of no use")
