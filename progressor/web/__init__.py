"""The console: pages that show what runs and why it broke, and forms that mend it.

Needs the extra `web`.

Rule: it is a caller like any other. Who may do what is the API's model of rights, checked at every page and
every form, and a page shows nothing of another origin.
"""

from progressor.http.server.auth.principals import Principal as Principal
from progressor.rights import EVERYTHING as EVERYTHING, Rights as Rights, Scope as Scope
from progressor.web.app import console as console
