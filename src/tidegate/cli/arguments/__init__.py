"""Arguments of commands: options, and the pipelines, deployments and runs that they name."""
