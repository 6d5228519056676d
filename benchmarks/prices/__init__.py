"""Prices of what a handler may have: resources, middleware, a connection; and of one that sleeps with it.

Rule: what is compared is measured in turn, in one OS process on one database, in rounds that begin with
another case each; a ratio is that of two medians of the table.
"""
