"""A billing service: trials, monthly renewals, dunning, refunds, invoices in tables of its own, e-mails.

`subscriptions` has the handlers, `outside` the payment provider and the mail service that they use,
`tables` the service's own tables, `app` puts them together for workers, and `web` is the web application.
"""
