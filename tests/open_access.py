"""Access without credentials: everybody may do everything, from anywhere."""

from starlette.requests import Request

from progressor.http.server.auth.principals import Principal
from progressor.http.server.auth.scopes import Admission
from progressor.rights import EVERYTHING

_ANYBODY = Principal("anybody", EVERYTHING)


class OpenAccess:
    """The authentication of tests that are about something else."""

    async def begin(self, host: str) -> None:
        """Refuse nothing."""

    async def close(self) -> None:
        """Close nothing: nothing was opened."""

    async def admit(self, request: Request) -> Admission:
        return Admission(_ANYBODY)
