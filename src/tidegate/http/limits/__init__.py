"""Limits, quotas and fair queues: no client uses up what all clients share."""
