"""The server: its socket, connections, deadlines and limits."""
