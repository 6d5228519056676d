"""The command line: each command parses, calls and prints; it decides nothing.

A new command is a function in a module of this folder, listed in `commands.py`.
"""
