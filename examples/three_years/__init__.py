"""Three years of a billing system in virtual time, checked to the cent against a plain calculation.

Read `subscriptions.py` first: it is what a user of Progressor writes. `plan.py` draws the customers and has
what goes wrong, `provider.py` stands for the bank, `years.py` lives through it, `calculation.py` computes
what must come of it, and `check.py` compares.
"""
