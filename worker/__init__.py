"""The worker process: loads one handler and runs batches through it; cheap to import."""
