"""Forms: what is read from which visitor, marks and proofs that belong to one browser and one token, and cookies of one port."""

import asyncio
import re
import threading
from typing import Any
from urllib.parse import parse_qsl, urlencode

import grpc
import pytest
from starlette.testclient import TestClient
from starlette.types import Message

from evenhand_cli.faults import Fault
from evenhand_console import app, forms, stale_forms, what_if
from evenhand_console.pages import Pages
from evenhand_console.protection import (
    TRIED_S,
    Hosts,
    Proof,
    Tried,
    form_mark,
    proven,
    tried_mark,
)
from tests.cli.fake import Failure, running
from tests.console.samples import core
from tests.console.serving import ADDRESS, console, console_of
from tests.console.test_what_if import TEXT, _applied, _core, _field

SECRET = b"s" * 32


def _mark(client: TestClient) -> str:
    return _field(client.get("/theme-page").text, "mark")


class _Upload:
    """A form that is sent slowly, straight to the application."""

    def __init__(self, client: TestClient, path: str, headers: dict[str, str]) -> None:
        cookies = "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)
        given = {"host": ADDRESS, "cookie": cookies} | headers
        self.scope: dict[str, Any] = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "server": ("127.0.0.1", 8080),
            "client": ("127.0.0.1", 9),
        }
        self.app = client.app
        self.body = b"a=b"
        self.reads = 0
        self.begun = asyncio.Event()
        self.rest = asyncio.Event()
        self.status = 0

    async def receive(self) -> Message:
        self.reads += 1
        self.begun.set()
        await self.rest.wait()
        return {"type": "http.request", "body": self.body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]

    async def run(self) -> int:
        await self.app(self.scope, self.receive, self.send)
        return self.status


def _sent(client: TestClient, upload: _Upload) -> int:
    assert client.portal is not None
    return client.portal.call(upload.run)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/theme", {"origin": "https://evil.example"}, 403),
        ("/theme", {"sec-fetch-site": "same-site"}, 403),
        ("/theme", {"cookie": ""}, 403),
        ("/theme", {"content-length": "16385"}, 413),
        ("/what-if/pods", {"content-length": "4194305"}, 413),
    ],
    ids=["origin", "site", "session", "length", "length of a text"],
)
def test_a_form_that_will_be_refused_is_not_read(
    path: str, headers: dict[str, str], status: int
) -> None:
    with console(core()) as client:
        client.get("/")
        upload = _Upload(client, path, headers)
        assert _sent(client, upload) == status
    assert not upload.reads


def test_the_text_of_a_visitor_whom_the_core_does_not_know_is_not_read() -> None:
    fake = core()
    fake.answers["ServerInfo"] = Failure(grpc.StatusCode.UNAUTHENTICATED, "no")
    with console(fake) as client:
        client.get("/")
        for path in ("pods", "configuration", "apply"):
            upload = _Upload(client, f"/what-if/{path}", {})
            assert _sent(client, upload) == 401
            assert not upload.reads


def test_few_texts_are_read_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "TEXTS_MAX", 2)

    async def many(client: TestClient) -> None:
        slow = [_Upload(client, "/what-if/pods", {}) for _ in range(2)]
        tasks = [asyncio.create_task(one.run()) for one in slow]
        for one in slow:
            await one.begun.wait()
        further = _Upload(client, "/what-if/pods", {})
        assert await further.run() == 503
        assert not further.reads
        for one in slow:
            one.rest.set()
        assert await asyncio.gather(*tasks) == [403, 403]  # They had no mark.
        again = _Upload(client, "/what-if/pods", {})
        again.rest.set()
        assert await again.run() == 403

    with console(core()) as client:
        client.get("/")
        assert client.portal is not None
        client.portal.call(many, client)


@pytest.mark.parametrize("path", ["/theme", "/what-if/pods"])
def test_a_form_that_does_not_come_is_given_up(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "FORM_S", 0.0)
    with console(core()) as client:
        client.get("/")
        assert _sent(client, _Upload(client, path, {})) == 408


def test_long_texts_keep_no_other_page_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes as long as the text is long happens outside the thread of the event loop."""
    seen: list[str] = []

    def noted(name: str, function: Any) -> Any:
        def call(*args: Any, **given: Any) -> Any:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                seen.append(name)
            return function(*args, **given)

        return call

    monkeypatch.setattr(Pages, "fragment", noted("rendered", Pages.fragment))
    monkeypatch.setattr(forms, "parse_qsl", noted("parsed", parse_qsl))
    monkeypatch.setattr(app, "page_of", noted("examined", stale_forms.page_of))
    with console(_core()) as client:
        mark = _field(client.get("/what-if").text, "mark")
        client.post("/what-if/configuration", data={"mark": mark, "yaml": TEXT})
        assert seen == ["rendered", "parsed", "rendered"]
        old = {"mark": "0" * 64, "yaml": TEXT}
        client.post("/what-if/configuration", data=old, headers=SAME_SITE)
    assert seen[3:] == ["parsed", "examined", "rendered"]


def test_simulations_keep_no_other_page_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """While every place for a simulation is taken, the pages of others are read."""
    begun, release = threading.Event(), threading.Event()

    def slow(*_: Any) -> Any:
        begun.set()
        assert release.wait(30)
        raise Fault("ended")

    monkeypatch.setattr(what_if, "tried", slow)
    for limit in ("THREADS_MAX", "ASKS_MAX"):
        monkeypatch.setattr(f"evenhand_console.app.{limit}", 1)

    async def meanwhile(client: TestClient, mark: str) -> None:
        upload = _Upload(client, "/what-if/configuration", {})
        upload.body = urlencode({"mark": mark, "yaml": TEXT}).encode()
        upload.rest.set()
        page = _Upload(client, "/queues", {})
        page.scope["method"] = "GET"
        task = asyncio.create_task(upload.run())
        try:
            await asyncio.to_thread(begun.wait, 30)
            assert await asyncio.wait_for(page.run(), 10) == 200
        finally:
            release.set()
            await task

    with console(_core()) as client:
        mark = _field(client.get("/what-if").text, "mark")
        assert client.portal is not None
        client.portal.call(meanwhile, client, mark)


def test_a_form_has_few_fields() -> None:
    with console(core()) as client:
        client.get("/")
        assert client.post("/theme", content=b"a=1&" * 100).status_code == 400


def test_a_session_is_the_consoles_own() -> None:
    with console(core()) as client:
        client.get("/")
        (name,) = [one.name for one in client.cookies.jar if "session" in one.name]
        for planted in ("x", "tried a b c", "a" * 42, "a" * 44, "ä" * 43):
            sent = {b"cookie": f"{name}={planted}".encode()}
            answer = client.get("/", headers=sent)
            assert name in answer.headers["set-cookie"]


def test_marks_of_two_kinds_are_never_equal() -> None:
    seen = Tried("session", "token", (7, "digest"), "text")
    proof = tried_mark(SECRET, seen, 5.0)
    assert form_mark(SECRET, "session") not in proof
    assert proven(SECRET, seen, 5.0, proof) is Proof.GOOD
    others = [
        Tried("session token", "", (7, "digest"), "text"),
        Tried("session", "token 7", (7, "digest"), "text"),
        Tried("session", "token", (8, "digest"), "text"),
        Tried("session", "token", (7, "other"), "text"),
        Tried("session", "token", (7, "digest"), "text "),
    ]
    assert {proven(SECRET, one, 5.0, proof) for one in others} == {Proof.NONE}
    assert proven(b"t" * 32, seen, 5.0, proof) is Proof.NONE
    _, _, mark = proof.partition("-")
    for given in ("", "-", mark, f"6-{mark}", f"-5-{mark}", f"{'9' * 99}-{mark}", f"²-{mark}"):
        assert proven(SECRET, seen, 5.0, given) is Proof.NONE


def test_a_proof_counts_for_an_hour() -> None:
    seen = Tried("session", "token", (7, "digest"), "text")
    proof = tried_mark(SECRET, seen, 100.9)
    assert proven(SECRET, seen, 100.0 + TRIED_S, proof) is Proof.GOOD
    assert proven(SECRET, seen, 101.0 + TRIED_S, proof) is Proof.OLD


def test_an_old_answer_is_not_applied_and_the_text_stays() -> None:
    fake, now = _core(), [0.0]
    with running(fake), console_of(fake.address, clock=lambda: now[0]) as client:
        page = client.get("/what-if").text
        names = ("mark", "base_revision", "base_digest", "origin")
        fields = {name: _field(page, name) for name in names} | {"yaml": f"{TEXT}# mine"}
        answer = client.post("/what-if/configuration", data=fields).text
        now[0] = TRIED_S + 1.0
        given = fields | {"tried": _field(answer, "tried")}
        late = client.post("/what-if/apply", data=given)
        assert (late.status_code, "older than 60 minutes" in late.text) == (409, True)
        assert "# mine</textarea>" in late.text
        assert not _applied(fake)
        again = client.post("/what-if/configuration", data=fields).text
        given |= {"tried": _field(again, "tried")}
        assert "is in force" in client.post("/what-if/apply", data=given).text


SAME_SITE = {"sec-fetch-site": "same-origin"}


@pytest.mark.parametrize("path", ["pods", "configuration", "apply"])
def test_the_text_of_a_page_from_before_a_restart_is_kept_and_nothing_is_done(path: str) -> None:
    fake = _core()
    name = "text" if path == "pods" else "yaml"
    text = f"{TEXT}# </textarea><b>mine"
    with console(fake) as client:
        client.get("/what-if")
        fake.requests.clear()
        sent = {"mark": "0" * 64, name: text, "base_digest": "d", "origin": "o", "tried": "t"}
        other = client.post(f"/what-if/{path}", data=sent)
        assert (other.status_code, "mine" in other.text) == (403, False)
        stale = client.post(f"/what-if/{path}", data=sent, headers=SAME_SITE)
        assert stale.status_code == 409
        assert "Nothing was done with the form" in stale.text
        assert "# &lt;/textarea&gt;&lt;b&gt;mine</textarea>" in stale.text
        assert {type(one).__name__ for one in fake.requests} == {"ServerInfoRequest"}
        fields = {one: _field(stale.text, one) for one in ("mark", "base_digest", "origin")}
        assert (fields["base_digest"], fields["origin"]) == ("d", "o")
        target = "pods" if path == "pods" else "configuration"
        assert f'action="/what-if/{target}"' in stale.text
        done = client.post(f"/what-if/{target}", data=fields | {name: TEXT}, headers=SAME_SITE)
        assert "Nothing was done" not in done.text


def test_another_old_form_leads_back_and_shows_no_token() -> None:
    with console(core()) as client:
        client.get("/")
        sent = {"mark": "0" * 64, "token": "secret-token", "next": "/queues?depth=2"}
        stale = client.post("/log-in", data=sent, headers={"origin": f"http://{ADDRESS}"})
        assert (stale.status_code, 'href="/queues?depth=2"' in stale.text) == (409, True)
        assert "secret-token" not in stale.text
        assert not any("token" in one.name for one in client.cookies.jar)


def test_an_old_text_with_control_characters_is_not_sent_again_changed() -> None:
    with console(_core()) as client:
        client.get("/")
        sent = {"mark": "0" * 64, "yaml": "# \x1b[2J"}
        stale = client.post("/what-if/configuration", data=sent, headers=SAME_SITE)
        assert "Go back in the browser" in stale.text
        assert 'name="yaml"' not in stale.text


def test_a_log_in_and_a_log_out_begin_a_new_session() -> None:
    with console(core()) as client:
        for path in ("/log-in", "/log-out"):
            mark = _mark(client)
            before = {one.value for one in client.cookies.jar if "session" in one.name}
            client.post(path, data={"mark": mark, "token": "t"})
            after = {one.value for one in client.cookies.jar if "session" in one.name}
            assert len(before) == len(after) == 1
            assert before != after
            assert client.post("/theme", data={"mark": mark}).status_code == 403


def test_an_answer_that_another_token_has_seen_applies_nothing() -> None:
    fake = _core()
    with console(fake, token_header="X-Token") as client:  # noqa: S106 -- the name of a header
        page = client.get("/what-if", headers={"X-Token": "ada"}).text
        names = ("mark", "base_revision", "base_digest", "origin")
        fields = {name: _field(page, name) for name in names} | {"yaml": TEXT}
        answer = client.post("/what-if/configuration", data=fields, headers={"X-Token": "ada"})
        given = fields | {"tried": _field(answer.text, "tried")}
        for token in ("bob", ""):
            done = client.post("/what-if/apply", data=given, headers={"X-Token": token})
            assert done.status_code == 409
        other = given | {"base_revision": "8"}
        done = client.post("/what-if/apply", data=other, headers={"X-Token": "ada"})
        assert done.status_code == 409
        assert not _applied(fake)
        assert client.post("/what-if/apply", data=given, headers={"X-Token": "ada"}).is_success
    assert len(_applied(fake)) == 1


def test_cookies_of_two_ports_are_apart() -> None:
    with console(core(), "https://a.example", "https://a.example:8443") as client:
        for host, name in (
            ("127.0.0.1:8080", "evenhand-session-8080"),
            ("a.example", "__Host-evenhand-session"),
            ("a.example:8443", "__Host-evenhand-session-8443"),
        ):
            cookie = client.get("/", headers={"host": host}).headers["set-cookie"]
            assert cookie.startswith(f"{name}=")
            assert ("Secure" in cookie) is host.startswith("a.")


@pytest.mark.parametrize(
    ("origin", "host"),
    [("https://a.example:443", "a.example"), ("http://A.example:80/", "a.example")],
)
def test_the_port_of_a_scheme_is_left_out_as_by_browsers(origin: str, host: str) -> None:
    found = Hosts(ADDRESS, [origin])
    assert found.knows(host)
    assert re.sub(r":\d+/?$", "", origin).lower() in found.origins
    assert Hosts("127.0.0.1:80").knows("localhost")
