"""Transfers: processes put by hand, exported and imported whole, and removed."""
