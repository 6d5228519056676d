"""Transfers: processes put by hand, exported whole, and imported whole."""
