"""Write frames to trajectory files, in order."""
