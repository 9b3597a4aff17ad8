"""Trajectories in HDF5 files: H5MD in its dialects, MDTraj's, NetCDF-4, and bare datasets."""
