"""Background services: scanner, zombie collector, bulk runner."""
