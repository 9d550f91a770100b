"""The client: runs of a server elsewhere, with requests that are retried."""
