"""Blocks of frames to the bytes of a file, and the file itself: one module a family of formats."""
