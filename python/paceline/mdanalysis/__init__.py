"""Code that depends on MDAnalysis: reader, writers, registration, topologies, analyses."""
