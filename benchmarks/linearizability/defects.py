"""Wrong answers, built into a facade on purpose: the run must find them.

Rule: nothing of this is in the product.
"""

from __future__ import annotations

from typing import Any

from benchmarks.linearizability import facade
from progressor import Client

Answer = dict[str, Any]

_STRANGE, _STALE = 10, 5


def build_in() -> None:
    """Make the facade of this process answer once with another request's answer, and read stale values.

    One read of each object is answered as its first read was, so late that others have been answered since.
    """
    sound = facade.call_object
    answers: list[Answer] = []
    reads: dict[tuple[str, str], list[Answer]] = {}

    async def wrong(client: Client, service: str, key: str, name: str, args: Answer) -> Answer:
        answer = await sound(client, service, key, name, args)
        answers.append(answer)
        if len(answers) == _STRANGE:
            return answers[0]
        if name != "get":
            return answer
        seen = reads.setdefault((service, key), [])
        if not seen or answer["value"] != seen[0]["value"]:
            seen.append(answer)
        return {**answer, "value": seen[0]["value"]} if len(seen) == _STALE else answer

    facade.call_object = wrong
