"""A minimal API server: plain HTTP with given answers; it records the requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from shim_client.kubernetes.access import access_config, http_client
from shim_client.kubernetes.api import Api, Rate
from shim_client.kubernetes.cluster import KubernetesCluster

CUT = "cut"
"""The line that ends a stream in the middle instead of in order."""
HANG = "hang"
"""The line after which the server is silent until the client disconnects."""


@dataclass(slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(slots=True)
class Answer:
    """An answer; with `lines` or `flow` it is a stream, and with `flow` one that ends when the iterator does."""

    code: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    lines: list[Any] | None = None
    flow: AsyncIterator[bytes] | None = None


Handler = Callable[[Asked], Answer | str | Awaitable[Answer]]


def status(code: int, message: str, **more: Any) -> Answer:
    """Return a refusal as the API server writes it."""
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message, **more}
    return Answer(code, body)


def listing(*items: Any, version: int = 10, more: str = "") -> Answer:
    metadata = {"resourceVersion": str(version), "continue": more}
    return Answer(body={"kind": "List", "metadata": metadata, "items": [*items]})


def stream(*lines: Any) -> Answer:
    return Answer(lines=[*lines])


def event(kind: str, name: str, version: int, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"type": kind, "object": {"metadata": metadata, **more}}


class FakeApi:
    """An API server that gets each answer from `handle`. With `keeps` it keeps all requests in `asked`."""

    def __init__(self, handle: Handler, *, keeps: bool = True) -> None:
        self.handle = handle
        self.asked: list[Asked] = []
        self._keeps = keeps
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()

    def of(self, method: str, ending: str = "") -> list[Asked]:
        return [one for one in self.asked if one.method == method and one.path.endswith(ending)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while (asked := await _read(reader)) is not None:
                if self._keeps:
                    self.asked.append(asked)
                if not await self._answer(asked, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self._open.discard(writer)
            writer.close()

    def cut(self) -> None:
        """Cut every connection."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return False when the connection has ended."""
        found = self.handle(asked)
        answer = found if isinstance(found, Answer | str) else await found
        if isinstance(answer, str):
            await asyncio.Event().wait()
            return False
        content = (
            answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        )
        head = {"Content-Type": "application/json", **answer.headers}
        if answer.lines is None and answer.flow is None:
            head["Content-Length"] = str(len(content))
            await _write(writer, answer.code, head, content)
            return True
        await _write(writer, answer.code, {**head, "Transfer-Encoding": "chunked"}, b"")
        if answer.flow is not None:
            async for line in answer.flow:
                await _write_chunk(writer, line)
        return await self._stream(answer.lines or [], writer)

    async def _stream(self, lines: list[Any], writer: asyncio.StreamWriter) -> bool:
        for line in lines:
            if line == HANG:
                await asyncio.Event().wait()
            if line == CUT:
                writer.transport.abort()
                return False
            part = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            await _write_chunk(writer, part)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def _write_chunk(writer: asyncio.StreamWriter, part: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(part), part))
    await writer.drain()


async def _write(
    writer: asyncio.StreamWriter, code: int, head: dict[str, str], content: bytes
) -> None:
    lines = [f"HTTP/1.1 {code} {HTTPStatus(code).phrase}", *(f"{k}: {v}" for k, v in head.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + content)
    await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    first = await reader.readline()
    if not first:
        return None
    method, target, _ = first.decode().split()
    headers = {}
    while line := (await reader.readline()).decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    body = json.loads(content) if content else None
    return Asked(method, parts.path, dict(parse_qsl(parts.query)), headers, body)


@dataclass(slots=True)
class World:
    """A fake API server, and the shim's backend that is connected to it."""

    api: FakeApi
    cluster: KubernetesCluster
    kubeconfig: Path
    now_ms: int = 1_767_225_600_000


@asynccontextmanager
async def world(folder: Path, handle: Handler, rate: Rate | None = None) -> AsyncIterator[World]:
    """Hold a fake API server and a cluster client that is connected to it; the account's token is `secret`."""
    fake = FakeApi(handle)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    kubeconfig = write_kubeconfig(folder / "kubeconfig", fake.port)
    config = access_config(kubeconfig, None)
    made: World
    cluster = KubernetesCluster(Api(http_client(config), rate), "own", lambda: made.now_ms)
    made = World(fake, cluster, kubeconfig)
    try:
        yield made
    finally:
        await cluster.close()
        server.close()
        fake.cut()


def write_kubeconfig(file: Path, port: int) -> Path:
    """Write a kubeconfig for a server on the loopback and return its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "shim", "user": {"token": "secret"}}],
        "contexts": [
            {"name": "fake", "context": {"cluster": "fake", "user": "shim", "namespace": "home"}}
        ],
    }
    file.write_text(json.dumps(config))
    return file
