"""The processes of a deployment: supervised, grouped, started and stopped."""
