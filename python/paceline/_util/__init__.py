"""Helpers that are independent of trajectories."""
