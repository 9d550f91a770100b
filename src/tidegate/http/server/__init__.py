"""The listening side: connections, their deadlines and limits."""
