"""The command line."""

from paceline.cli.main import main

__all__ = ["main"]
