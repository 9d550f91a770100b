"""The client side: requests that are repeated while a repetition can help."""
