"""Asks: requests and their way to an answer."""
