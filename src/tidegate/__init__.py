"""Multi-stage data pipelines on Spark that know exactly when they are done."""

__version__ = "0.1.0"
