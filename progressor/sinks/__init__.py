"""Sinks: where the events of the feed are sent to, outside of the database."""
