"""What a route takes of a request, and that it refuses all else."""

from __future__ import annotations

import httpx
import pytest
from starlette.responses import Response

from progressor.http.server.api_request import ApiRequest
from progressor.http.server.operation import Operation
from tests.http import shop
from tests.http.test_scopes import MATRIX, Row

ORDER = f"/v1/namespaces/{shop.NS}/processes/o1"


def test_an_endpoint_takes_nothing_that_its_route_would_not_read() -> None:
    """A parameter that no segment gives, and that has no default, is refused where the route is made."""

    async def endpoint(request: ApiRequest, found: str) -> Response:
        return Response(found, headers={"path": request.url.path})

    with pytest.raises(TypeError, match="found is neither"):
        Operation("GET", "/x", endpoint, "", scope=None)


def _at(row: Row) -> str:
    return row.path.format(
        namespace=shop.NS,
        process_id="o1",
        name="echo",
        task_id=1,
        timer="default",
        bulk_id=1,
        group="acme",
    )


@pytest.mark.parametrize(
    "row", [row for row in MATRIX if not row.query], ids=lambda row: f"{row[0]} {row[1]}"
)
async def test_a_query_that_a_route_does_not_know_is_refused(api: httpx.AsyncClient, row: Row) -> None:
    """On every route, by the name of the parameter, before anything is done."""
    await api.post(ORDER, json={"item": "tea"})
    refused = await api.request(row.method, _at(row) + "?rehearsal=true")
    assert (refused.status_code, refused.json()["field"]) == (400, "rehearsal")
    assert refused.json()["errors"][0]["pointer"] == "/rehearsal"
    assert len((await api.get(f"{ORDER}/trace")).json()["tasks"]) == 1


@pytest.mark.parametrize("path", ["/v1/processes?limit=1&limit=2", f"{ORDER}/events?limit=1&limit=1"])
async def test_a_parameter_that_is_given_twice_is_refused(api: httpx.AsyncClient, path: str) -> None:
    """Whatever it says: no reader would know which one counts."""
    refused = await api.get(path)
    assert (refused.status_code, refused.json()["detail"]) == (400, "limit: given twice")


async def test_a_query_that_is_no_text_is_refused(api: httpx.AsyncClient) -> None:
    """Not read as something near it."""
    refused = await api.get("/v1/processes?cursor=%FF")
    assert (refused.status_code, refused.json()["field"]) == (400, "query")


@pytest.mark.parametrize("header", ["Idempotency-Key", "Progressor-Context", "Content-Type"])
async def test_a_header_that_stands_twice_is_refused(api: httpx.AsyncClient, header: str) -> None:
    """Where one alone can count; nothing is done."""
    await api.post(ORDER, json={"item": "tea"})
    headers = [("Content-Type", "application/json"), (header, "1"), (header, "2")]
    refused = await api.post(f"{ORDER}/calls/echo", content=b"1", headers=headers)
    assert (refused.status_code, refused.json()["field"]) == (
        400,
        header.rpartition("Progressor-")[2].lower().replace("-", "_"),
    )
    assert len((await api.get(f"{ORDER}/trace")).json()["tasks"]) == 1


_CONDITIONS = {
    "If-Match": 'W/"0123456789abcdef"',
    "If-Unmodified-Since": "Sat, 29 Oct 1994 19:43:31 GMT",
    "If-None-Match": 'W/"0123456789abcdef"',
}
_CREATES = {
    ("POST", "/v1/namespaces/{namespace}/processes/{process_id}"),
    ("PUT", "/v1/namespaces/{namespace}/processes/{process_id}"),
}


@pytest.mark.parametrize("header", _CONDITIONS)
@pytest.mark.parametrize(
    "row", [row for row in MATRIX if row.method != "GET"], ids=lambda row: f"{row[0]} {row[1]}"
)
async def test_a_precondition_is_never_ignored(api: httpx.AsyncClient, row: Row, header: str) -> None:
    """A change that depends on one is refused wherever that cannot be kept, and nothing is done."""
    await api.post(ORDER, json={"item": "tea"})
    refused = await api.request(row.method, _at(row), headers={header: _CONDITIONS[header]})
    if header == "If-None-Match" and row[:2] in _CREATES:
        # It holds: what would be made is not there.
        assert refused.status_code != 412
        return
    assert (refused.status_code, refused.json()["header"]) == (412, header)
    assert refused.json()["type"].endswith(":precondition-not-supported")
    assert len((await api.get(f"{ORDER}/trace")).json()["tasks"]) == 1


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_what_shall_not_be_there_yet(api: httpx.AsyncClient, method: str) -> None:
    """`If-None-Match: *` makes a process once; 412 if there is one."""
    body = {"item": "tea"} if method == "POST" else {"state": {"item": "tea"}}
    statuses = [
        (await api.request(method, ORDER, json=body, headers={"If-None-Match": "*"})).status_code
        for _ in range(2)
    ]
    assert statuses == [201, 412]
