"""Other systems at the same work, each in a child process of the peers' own environment.

Rule: the same durability (fsync, synchronous_commit, logged tables), the system's own documented fast
settings, one OS process for its workers and clients, uvloop where it runs on asyncio; and where the work
cannot be the same, the module's docstring says what differs and in whose favour.
"""
