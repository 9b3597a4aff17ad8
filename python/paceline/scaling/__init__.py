"""Time of an analysis by number of workers: measured, predicted, summed up, drawn."""
