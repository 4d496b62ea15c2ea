"""Laws and promises that need no server: memory store, virtual time, no sleeping."""
