"""Trajectories in HDF5 files: H5MD, MDTraj HDF5, Amber NetCDF-4 and plain datasets."""
