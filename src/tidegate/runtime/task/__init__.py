"""One task: fetch messages, align barriers, process batches, commit."""
