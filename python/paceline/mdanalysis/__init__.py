"""Code that depends on MDAnalysis's interfaces: reader, registration, topologies, analyses."""
