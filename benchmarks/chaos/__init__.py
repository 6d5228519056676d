"""A ledger under faults: whatever is killed, frozen, cut or restarted, every account must be exact."""
