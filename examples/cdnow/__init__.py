"""An online music shop's customers as processes: 6,919 real purchases, replayed and checked.

Read `shop.py` first, then `read_model.py`: they are what a user of Progressor writes. The rest asks and
checks them: `purchases.py` reads the file, `troubles.py` says what goes wrong on purpose, `replay.py` buys,
`view.py` shows it, `check.py` compares with the file, `main.py` puts it together.
"""
