"""The command line."""

from paceline.cli.command_line import main

__all__ = ["main"]
