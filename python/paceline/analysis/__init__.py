"""Analyses, under the module names of MDAnalysis.analysis."""
