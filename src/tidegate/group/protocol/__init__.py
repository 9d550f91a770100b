"""What travels between members and their coordinator: frames and proofs of the secret."""
