"""Run the blocks of an analysis: plan, tasks, workers, reduction and collection."""
