"""What every process runs on: batches, tasks, leases, logs, metrics; nothing of the product."""
