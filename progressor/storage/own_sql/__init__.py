"""Steps saved in the transaction in which their handlers ran SQL of their own."""
