"""Benchmarks, each against a peer that does the same in the same run.

`python -m bench.NAME` runs one and prints a table, with `--json` for programs; `make bench` runs
them all. The figure to look at is the ratio: both sides ran on the same machine in the same
seconds, so it survives a change of machine, which messages per second do not.
"""
