"""The edge: settings, logs, monitor, which database, services of their own."""
