"""All that knows MDAnalysis's interfaces: its readers, registry, topologies and analyses."""
