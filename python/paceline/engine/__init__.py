"""Schedule the blocks of a run: plan, tasks, workers, reduction, collection."""
