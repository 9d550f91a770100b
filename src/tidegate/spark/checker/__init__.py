"""Chunk checkers: disposable processes that read the files of clients."""
