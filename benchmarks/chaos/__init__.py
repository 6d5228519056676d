"""A ledger under faults: everything is killed, frozen, cut and restarted, and every account must be exact."""
