"""Deployment: settings, logs, monitoring, supervised OS processes."""
