"""Free ports of this machine, for programs that do not choose one themselves."""

import contextlib
import random
import socket


def free_port(host: str = "127.0.0.1") -> int:
    """Return a free port that the system does not give to other programs.

    Systems choose ports above 32767 for programs that ask for any free one.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with contextlib.suppress(OSError), socket.create_server((host, port), family=family):
            return port
    raise RuntimeError(f"100 ports of {host} are in use")
