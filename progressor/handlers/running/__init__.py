"""The run of a handler: its thread or its asyncio task, its deadline, and what it waits for."""
