"""The commands that run the processes of a deployment: a server, monitors, workers."""
