"""Pipelines on a Conductor server: the port, deployment, workers."""
