"""Workloads beside those of `progressor bench`: ages, names, mailboxes, distance, memory.

The rules of `progressor.bench` hold for them too.
"""
