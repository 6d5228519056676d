"""The commands for tokens of the HTTP API: token create, token list, token revoke.

Rule: a secret is printed once, on stdout, when it is made. No command takes one as an argument, because
other users can list the arguments of OS processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.text import Text

from progressor.cli.options import ACTING, ASKING, AsJson, Yes, confirm, with_settings
from progressor.cli.output import clock, note, print_answer, print_json, stdout
from progressor.cli.question import ask
from progressor.cli.tables import Listing, print_found
from progressor.cli.values import read_duration
from progressor.client.tokens import LONGEST
from progressor.deployment.settings import Settings
from progressor.rights import Scope, Token
from progressor.texts import visible

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Tokens of callers of the HTTP API.",
    epilog="progressor token create web-shop --scope processes:read,processes:call --namespace 'billing.*'",
)

_STYLES = {"live": "green", "expired": "dim", "revoked": "dim"}
TokenId = Annotated[str, typer.Argument(metavar="ID", help="Id, as `progressor token list` shows it.")]


@app.command()
@with_settings(ACTING)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its user; need not be unique.")],
    *,
    scope: Annotated[
        list[str],
        typer.Option(
            help=f"A scope; repeat the option or use commas for more: {', '.join(Scope)}; "
            "all: each of them."
        ),
    ],
    namespace: Annotated[
        list[str],
        typer.Option(
            "--namespace",
            "-n",
            help="A namespace; repeat the option for more. * is any text: 'billing.*', '*' for all.",
        ),
    ],
    expires: Annotated[
        str, typer.Option(help="Time until it expires: 90d, 12h, 30m, ISO 8601; or never.")
    ] = "90d",
    json: AsJson = False,
    settings: Settings,
) -> None:
    """Make a token, and print it: once, for only its hash is kept.

    Example: progressor token create web-shop --scope processes:read,processes:call -n 'billing.*'
    """
    scopes = [part.strip() for text in scope for part in text.split(",")]
    lifetime = _read_lifetime(expires)
    token, bearer = ask(
        settings,
        lambda client: client.tokens.create(name, scopes=scopes, namespaces=namespace, lifetime=lifetime),
    )
    if json:
        print_json({"token": bearer.text, **_plain(token)})
        return
    # The token stands alone on stdout, for a pipe into a secret store.
    stdout().print(bearer.text, soft_wrap=True)
    end = "does not end" if token.expires_at is None else f"ends {clock(token.expires_at)}"
    note(f"This is token {token.token_id} ({token.name}), which {end}. It is not shown again: keep it now.")


@app.command("list")
@with_settings(ASKING)
def list_(*, json: AsJson = False, settings: Settings) -> None:
    """Show all tokens, without their secrets; the time of the last use is exact to some five minutes.

    Example: progressor token list --json
    """
    tokens = ask(settings, lambda client: client.tokens.listed())
    nothing = "there are no tokens: `progressor token create` makes one"
    print_found(tokens, _view, nothing, machine=json, document=_plain)


@app.command()
@with_settings(ACTING)
def revoke(token_id: TokenId, *, yes: Yes = False, json: AsJson = False, settings: Settings) -> None:
    """End a token. Asks first. Servers accept it for a few seconds more.

    Example: progressor token revoke 4f0c2a7b9d1e3856
    """
    confirm("End this token for good?", yes=yes)
    token = ask(settings, lambda client: client.tokens.revoke(token_id))
    revoked = f"revoked {token.token_id} ({token.name})"
    print_answer(_plain(token) if json else None, revoked, machine=json)


def _read_lifetime(text: str) -> timedelta | None:
    if text == "never":
        return None
    lifetime = read_duration(text, "--expires")
    if lifetime is None or not timedelta() < lifetime <= LONGEST:
        raise typer.BadParameter(
            f"it must be more than nothing and at most {LONGEST.days} days, or never",
            param_hint="--expires",
        )
    return lifetime


def _plain(token: Token) -> dict[str, Any]:
    """Return the fields of a token for JSON, without the hash of its secret."""
    return {
        "token_id": token.token_id,
        "name": token.name,
        "status": token.status,
        "scopes": sorted(token.rights.scopes),
        "namespaces": list(token.rights.namespaces),
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
        "last_used_at": token.last_used_at,
    }


def _view(tokens: Sequence[Token]) -> Listing:
    listing = Listing("id", "name", "status", "ends", "last used", "scopes", "namespaces")
    for token in tokens:
        listing.add(
            token.token_id,
            Text(visible(token.name), style="bold"),
            Text(token.status, style=_STYLES[token.status]),
            clock(token.expires_at) or "never",
            clock(token.last_used_at) or "never",
            Text("\n".join(sorted(token.rights.scopes))),
            Text("\n".join(token.rights.namespaces)),
        )
    return listing
