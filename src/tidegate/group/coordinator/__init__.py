"""The coordinator: keeps the members of a group and decides the rounds of its barriers."""
