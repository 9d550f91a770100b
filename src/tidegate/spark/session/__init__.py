"""Spark sessions: started, probed, authenticated, watched."""
