"""Limits, quotas and fair queues: no client uses up shared resources."""
