"""Helpers that know nothing of trajectories."""
