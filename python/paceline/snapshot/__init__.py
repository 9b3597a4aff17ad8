"""Atoms spread over the ranks of a simulation, and one ordered file."""
