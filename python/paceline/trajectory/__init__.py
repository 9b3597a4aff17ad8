"""Trajectories: open, index, chain, read, split and join."""
