"""The base of every process: computing, batches, tasks, logs, metrics; no product."""
