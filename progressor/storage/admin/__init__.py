"""Operators' work: namespaces, figures, mailboxes, bulks, tokens."""
