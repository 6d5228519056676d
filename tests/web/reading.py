"""A browser without scripts: it reads pages, keeps cookies, follows links and sends forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import takewhile
from typing import Any, Self
from urllib.parse import urldefrag, urlencode, urljoin

import httpx

HOST = "http://localhost"
_VOID = frozenset({"input", "link", "meta", "br", "img", "hr"})
_SHOWN_IN_HEAD = frozenset({"title", "script", "style"})


@dataclass
class Form:
    """A form as it stands in a page: where it goes, what its fields hold, and its buttons."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_post(self) -> bool:
        return self.method == "post"


@dataclass
class Page:
    """What a browser got, and what stands in it."""

    url: str
    answer: httpx.Response
    links: list[str] = field(default_factory=list)
    assets: list[str] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    texts: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        return self.answer.status_code

    @property
    def html(self) -> str:
        return self.answer.text

    @property
    def said(self) -> str:
        """The text of the page, without its marks."""
        return "".join(text for _, text in self.texts)

    def of(self, tag: str) -> list[str]:
        """The texts of all elements of this tag, piece by piece."""
        return [text for path, text in self.texts if tag in path]

    def options(self, of: str) -> list[str]:
        """What the data list of this id offers."""
        begin = self.attributes.index(("datalist", "id", of)) + 1
        values = takewhile(lambda each: each[:2] == ("option", "value"), self.attributes[begin:])
        return [value for _, _, value in values]

    @property
    def note(self) -> str | None:
        """The note of the form before."""
        noted = [text for path, text in self.texts if "p.note" in path]
        return "".join(noted) if noted else None

    def form(self, end: str, button: str | None = None, **holds: str) -> Form:
        """The one form that is sent to an address that ends so, with such a button, and such fields."""
        (found,) = (
            each
            for each in self.forms_to(end)
            if holds.items() <= each.fields.items()
            and (not button or button in [value for _, value in each.buttons])
        )
        return found

    def forms_to(self, end: str) -> list[Form]:
        """The forms that are sent to addresses that end so."""
        return [each for each in self.forms if each.action.split("?")[0].endswith(end)]


class _Reader(HTMLParser):
    def __init__(self, page: Page) -> None:
        super().__init__(convert_charrefs=True)
        self.page = page
        self._open: list[str] = []
        self._select: str | None = None
        self._chosen: str | None = None
        self._option: dict[str, str | None] | None = None
        self._area: str | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.page.attributes += [(tag, name, value) for name, value in given.items()]
        if tag == "p" and given.get("class") == "note":
            self._open.append("p.note")
        elif tag not in _VOID:
            self._open.append(tag)
        self._noted(tag, given)
        if tag == "form":
            where = urljoin(self.page.url, given.get("action", ""))
            self.page.forms.append(Form(where, given.get("method", "get").lower()))
        elif self.page.forms and "form" in self._open:
            self._field(tag, given)

    def _noted(self, tag: str, given: dict[str, str]) -> None:
        if tag == "a" and "href" in given:
            self.page.links.append(urldefrag(urljoin(self.page.url, given["href"])).url)
        for name in ("src", "href"):
            if tag in ("link", "script", "img") and name in given:
                self.page.assets.append(urljoin(self.page.url, given[name]))

    def _field(self, tag: str, given: dict[str, str]) -> None:
        form, name = self.page.forms[-1], given.get("name", "")
        if tag == "button" and name:
            form.buttons.append((name, given.get("value", "")))
        elif tag == "input" and name:
            if given.get("type") not in ("radio", "checkbox") or "checked" in given:
                form.fields[name] = given.get("value", "")
        elif tag == "textarea":
            self._area, form.fields[name] = name, ""
        elif tag == "select":
            self._select, self._chosen = name, None
        elif tag == "option" and self._select is not None:
            self._option, self._text = dict(given), ""

    def handle_data(self, data: str) -> None:
        if not data:
            return
        if self._open and self._open[-1] in ("script", "style") and data.strip():
            self.page.inline.append(data)
        self.page.texts.append((tuple(self._open), data))
        self._text += data
        if self._area is not None:
            self.page.forms[-1].fields[self._area] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "option" and self._option is not None and self._select is not None:
            value = self._option.get("value", self._text)
            if self._chosen is None or "selected" in self._option:
                self._chosen = value
            self._option = None
        elif tag == "select" and self._select is not None:
            self.page.forms[-1].fields[self._select] = self._chosen or ""
            self._select = None
        elif tag == "textarea":
            self._area = None
        for place in range(len(self._open) - 1, -1, -1):
            if self._open[place].split(".")[0] == tag:
                del self._open[place:]
                break


def read(answer: httpx.Response) -> Page:
    """The page of an answer."""
    page = Page(str(answer.url), answer)
    if answer.headers.get("Content-Type", "").startswith("text/html"):
        reader = _Reader(page)
        reader.feed(answer.text)
        reader.close()
        assert not reader._open, f"{page.url}: {reader._open} are not closed"
    return page


class Browser:
    """One browser on a console: with its own cookies, and the token of its user, if it has one."""

    def __init__(
        self, app: Any, *, token: str | None = None, root: str = "/", headers: dict[str, str] | None = None
    ) -> None:
        self.app, self.root = app, HOST + root
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(
            transport=transport, base_url=self.root, timeout=60, headers=headers, follow_redirects=True
        )
        if token is not None:
            self.http.cookies.set("progressor_token", token, domain="localhost.local")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def get(self, path: str = "", **options: Any) -> Page:
        """The page at an address below the root, after all redirects."""
        return read(await self.http.get(urljoin(self.root, path), **options))

    async def send(
        self,
        form: Form,
        button: str | None = None,
        *,
        headers: dict[str, str] | None = None,
        follow: bool = True,
        **fields: str,
    ) -> Page:
        """The page that answers a form, with these fields filled in, by the button of this value."""
        pressed = dict(each for each in form.buttons if each[1] == button)
        assert button is None or pressed, f"no button {button}: {form.buttons}"
        data = {**form.fields, **fields, **pressed}
        if form.is_post:
            answer = await self.http.post(form.action, data=data, headers=headers, follow_redirects=follow)
        else:
            answer = await self.http.get(f"{form.action.split('?')[0]}?{urlencode(data)}")
        return read(answer)
