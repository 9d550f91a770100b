"""What every part of the store uses: database, queries, leases, notifications."""
