"""A parcel service for shops: labels of a carrier, scans, promises, and claims for what does not come.

`parcels` and `claims` have the handlers, `model` their states and arguments, `carrier` the client of the
carrier, and `tables` the service's own table. `app` puts them together for workers, `web` is the web
application, and `fake_carrier` a carrier to try it with.
"""
