"""Files, programs and calls that several test modules use."""
