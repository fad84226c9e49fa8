"""The console over HTTP: pages, hostile names, headers, hosts, forms, the log-in, and pages that report an error."""

import inspect
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import pytest
from starlette.testclient import TestClient

from evenhand.v1 import explain_pb2, inspect_pb2
from evenhand_console.pages import Pages, coded
from evenhand_console.query import query_of
from evenhand_console.view import View
from evenhand_console.views import VIEWS
from tests.cli.fake import Failure, FakeCore
from tests.cli.samples import T0
from tests.console import replies
from tests.console.samples import HOSTILE, core
from tests.console.serving import ADDRESS, SELDOM, console, console_of

TAG = re.compile(r"<(script|img|iframe|object)\b[^>]*>", re.IGNORECASE)
ACTING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


def _path(path: str, name: str) -> str:
    given = {
        "/queue": f"queue={quote(f'root.{name}')}",
        "/why": f"key={quote(name)}",
        "/decision": "id=any",
    }
    return f"{path}?{given[path]}" if path in given else path


def _mark(client: TestClient) -> str:
    found = re.search(r'name="mark" value="(\w+)"', client.get("/").text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
@pytest.mark.parametrize("name", HOSTILE, ids=["markup", "controls", "long"])
def test_names_are_text_on_every_page(view: object, name: str) -> None:
    with console(core(name)) as client:
        answer = client.get(_path(view.path, name))  # type: ignore[attr-defined]
    assert answer.status_code == 200, answer.text
    view_part = answer.text.partition("<main>")[2]
    assert TAG.search(view_part) is None
    assert ACTING.search(answer.text) is None
    assert name[:20] in view_part or "&lt;script&gt;" in view_part or "\\x1b[2J" in view_part


@pytest.mark.parametrize("name", HOSTILE, ids=["markup", "controls", "long"])
def test_the_history_of_a_pod_is_text(name: str) -> None:
    fake = core(name)
    fake.answers["Explain"] = explain_pb2.ExplainResponse(kind=explain_pb2.SUBJECT_KIND_UNKNOWN)
    fake.answers["ListAllocations"] = inspect_pb2.ListAllocationsResponse()
    with console(fake) as client:
        answer = client.get("/why?key=ended")
    assert answer.status_code == 200, answer.text
    assert "From the history" in answer.text
    assert TAG.search(answer.text.partition("<main>")[2]) is None
    assert ACTING.search(answer.text) is None


@pytest.mark.parametrize("code", ["NOT_FOUND", "UNIMPLEMENTED", "PERMISSION_DENIED"])
def test_a_pod_that_the_history_does_not_have_is_not_found(code: str) -> None:
    fake = core()
    fake.answers["Explain"] = explain_pb2.ExplainResponse(kind=explain_pb2.SUBJECT_KIND_UNKNOWN)
    fake.answers["ListAllocations"] = inspect_pb2.ListAllocationsResponse()
    fake.answers["GetPodHistory"] = Failure(grpc.StatusCode[code], "no such pod")
    with console(fake) as client:
        answer = client.get("/why?key=ended")
    assert answer.status_code == 404
    assert "nothing has the name <code>ended</code>" in answer.text


def test_words_between_backquotes_are_code_and_all_else_is_text() -> None:
    assert coded("say `make <real>` & wait") == "say <code>make &lt;real&gt;</code> &amp; wait"
    assert coded("a ` alone") == "a ` alone"
    assert coded("`\x1b[2J`") == "<code>\\x1b[2J</code>"


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_no_page_shows_a_backquote(view: View[Any]) -> None:
    """The sentences of the core and of the command line have commands and codes between backquotes."""
    kind = inspect.get_annotations(view.shape, eval_str=True)["found"]
    found = replies.load(kind, view.name)
    query = query_of(view.path, view.parameters, [("key", "any"), ("id", "any")])
    if view.name in {"queue", "tenant"}:
        query = query_of(view.path, view.parameters, [("queue", "root.shop")])
    page = view.shape(found, query)
    html = Pages({}).fragment(view.name, page=page, query=query, notices=()).html
    assert "`" not in html


def test_a_page_allows_no_inline_script_or_style() -> None:
    with console(core()) as client:
        for view in VIEWS:
            answer = client.get(view.path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", answer.text)
            assert all("src=" in one for one in re.findall(r"<script[^>]*>", answer.text))
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"


def test_every_asset_of_a_page_is_served() -> None:
    with console(core()) as client:
        page = client.get("/").text
        for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', page):
            assert client.get(path).status_code == 200, path


def test_the_console_answers_under_its_own_names_alone() -> None:
    with console(core(), "https://evenhand.example") as client:
        for host in ("evenhand.example", ADDRESS, "localhost:8080"):
            assert client.get("/", headers={"host": host}).status_code == 200
        for host in ("evil.example", "127.0.0.1:9", "evenhand.example.evil", ""):
            refused = client.get("/", headers={"host": host})
            assert refused.status_code == 421
            assert "root" not in refused.text
        assert client.get("/healthz", headers={"host": "10.0.0.7:8080"}).text == "ok\n"


def test_the_token_of_a_log_in_goes_to_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenhand_console.app.VIEWS", SELDOM)
    fake = core()
    with console(fake) as client:
        sent = {"mark": _mark(client), "token": "secret-token", "next": "/queues"}
        answer = client.post("/log-in", data=sent, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/queues")
        cookie = next(
            one for one in answer.headers.get_list("set-cookie") if "evenhand-token" in one
        )
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        fake.metadata.clear()
        page = client.get("/queues")
        assert {one["authorization"] for one in fake.metadata} == {"Bearer secret-token"}
        assert "secret-token" not in page.text
        client.post("/log-out", data={"mark": _mark(client)}, follow_redirects=False)
        fake.metadata.clear()
        client.get("/queues?depth=1")
        assert fake.metadata
        assert not any("authorization" in one for one in fake.metadata)


def test_by_https_cookies_are_for_https_alone() -> None:
    with console(core(), "https://evenhand.example") as client:
        for cookie in client.get("/").headers.get_list("set-cookie"):
            assert cookie.startswith("__Host-")
            assert "Secure" in cookie


@pytest.mark.parametrize(
    "changed",
    [
        {"mark": "0" * 64},
        {"sec-fetch-site": "cross-site"},
        {"origin": "https://evil.example"},
    ],
    ids=["mark", "site", "origin"],
)
def test_a_form_of_another_site_is_refused(changed: dict[str, str]) -> None:
    with console(core()) as client:
        mark = changed.get("mark", _mark(client))
        headers = {name: value for name, value in changed.items() if name != "mark"}
        answer = client.post(
            "/log-in", data={"mark": mark, "token": "t"}, headers=headers, follow_redirects=False
        )
        assert answer.status_code == 403
        assert "evenhand-token" not in answer.headers.get("set-cookie", "")


@pytest.mark.parametrize(
    "path", ["https://evil.example/", "//evil.example", "/\\evil.example", "x", "/a\nb"]
)
def test_a_log_in_leads_to_the_console_alone(path: str) -> None:
    with console(core()) as client:
        sent = {"mark": _mark(client), "token": "t", "next": path}
        assert client.post("/log-in", data=sent, follow_redirects=False).headers["location"] == "/"


def test_the_header_of_a_proxy_counts_only_if_asked_for() -> None:
    given = {"X-Token": "Bearer from-proxy"}
    for header, expected in (("", None), ("X-Token", "Bearer from-proxy")):
        fake = core()
        with console(fake, token_header=header) as client:
            client.get("/queues", headers=given)
        assert fake.metadata[0].get("authorization") == expected


def test_the_choice_of_colours_needs_no_script() -> None:
    with console(core()) as client:
        client.post("/theme", data={"mark": _mark(client), "theme": "dark", "next": "/"})
        assert '<html lang="en" data-theme="dark">' in client.get("/").text


@pytest.mark.parametrize(
    ("code", "status", "title"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, 401, "Log in to see this page"),
        (grpc.StatusCode.PERMISSION_DENIED, 403, "Your role may not see this page"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 503, "The core does not answer"),
        (grpc.StatusCode.INTERNAL, 502, "The core refused to answer"),
    ],
)
def test_a_refusal_is_a_page_in_plain_words(code: grpc.StatusCode, status: int, title: str) -> None:
    fake = core()
    fake.answers["GetQueueTree"] = Failure(code, "because of this")
    with console(fake) as client:
        answer = client.get("/queues")
    assert answer.status_code == status
    assert title in answer.text
    assert "because of this" in answer.text


def test_a_core_that_is_away_has_a_page() -> None:
    with console_of("127.0.0.1:1") as client:
        answer = client.get("/")
    assert answer.status_code == 503
    assert "The core does not answer" in answer.text
    assert "hx-sse:connect" in answer.text


def test_a_follower_says_how_far_it_is_behind() -> None:
    fake = core()
    picture = fake.answers["ListPartitions"].picture  # type: ignore[union-attr]
    picture.follows, picture.behind, picture.heard_ms = "core-a:50051", 12, picture.taken_at_ms
    with console(fake) as client:
        assert "12 events and ticks behind core-a:50051" in client.get("/queues").text


def test_an_unknown_page_and_an_unknown_queue_are_not_found() -> None:
    with console(core()) as client:
        assert client.get("/nothing").status_code == 404
        assert client.get("/queue?queue=root.nothing").status_code == 404


def test_pages_of_one_kind_need_one_read() -> None:
    fake: FakeCore = core()
    with console(fake) as client:
        first = client.get("/queues").text
        before = len(fake.requests)
        assert client.get("/queues").text.partition("<main>")[2] == first.partition("<main>")[2]
        assert len(fake.requests) - before < before


@pytest.mark.parametrize("kept", [0, 1])
def test_nodes_are_listed_for_timers_only_if_one_is_kept(kept: int) -> None:
    fake = core()
    found = fake.answers["ListPartitions"].partitions[0]  # type: ignore[union-attr]
    found.counts.commitments = kept
    with console(fake) as client:
        assert client.get("/timers").status_code == 200
    asked = any(isinstance(one, inspect_pb2.ListNodesRequest) for one in fake.requests)
    assert asked is bool(kept)


def test_an_overview_says_that_the_checks_still_run() -> None:
    fake = core()
    for checked_ms, expected in ((0, True), (T0, False)):
        fake.answers["CheckConsistency"] = inspect_pb2.CheckConsistencyResponse(
            checked_at_ms=checked_ms
        )
        with console(fake) as client:
            assert ("checks still run" in client.get("/").text) is expected


PUBLIC = "https://evenhand.example"


@pytest.fixture
def own_token(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text("token-of-the-console")
    return str(file)


@pytest.mark.parametrize("header", ["", "X-Token"])
def test_visitors_of_a_public_address_are_asked_to_log_in(own_token: str, header: str) -> None:
    fake = core()
    with console(fake, PUBLIC, token_file=own_token, token_header=header) as client:
        for path in [*(one.path for one in VIEWS), "/what-if", "/what-if?revision=1"]:
            answer = client.get(path, headers={"X-Token": ""})
            assert answer.status_code == 401, path
            assert "Log in to see this page" in answer.text
            assert 'action="/log-in"' in answer.text
        mark = _mark(client)
        for path in ("pods", "configuration"):
            sent = {"mark": mark, "text": "asks: [{queue: root.a, resources: {vcore: 1}}]"}
            assert client.post(f"/what-if/{path}", data=sent).status_code == 401
        assert not fake.requests
        client.post("/log-in", data={"mark": mark, "token": "token-of-ada"})
        assert client.get("/queues").status_code == 200
    assert {one["authorization"] for one in fake.metadata} == {"Bearer token-of-ada"}


@pytest.mark.parametrize(
    ("origins", "shared"),
    [((), False), ((PUBLIC,), True)],
    ids=["this machine", "shared"],
)
def test_elsewhere_they_read_with_the_identity_of_the_console(
    own_token: str, origins: tuple[str, ...], *, shared: bool
) -> None:
    fake = core()
    with console(fake, *origins, token_file=own_token, share_identity=shared) as client:
        assert client.get("/queues").status_code == 200
    assert {one["authorization"] for one in fake.metadata} == {"Bearer token-of-the-console"}


def test_a_core_that_is_open_to_everybody_is_also_open_at_a_public_address() -> None:
    with console(core(), PUBLIC) as client:
        assert client.get("/queues").status_code == 200


def test_a_page_that_asks_to_log_in_opens_no_stream(own_token: str) -> None:
    with console(core(), PUBLIC, token_file=own_token) as client:
        assert "hx-sse:connect" not in client.get("/queues").text
        client.post("/log-in", data={"mark": _mark(client), "token": "token-of-ada"})
        assert "hx-sse:connect" in client.get("/queues").text
