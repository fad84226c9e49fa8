"""The input log on NATS JetStream: one connection, the messages, and the checkpoints in an object store (design 7.4).

Only this module uses the client of NATS, which the extra `ha` installs. A connection is not restored: after a failure the caller
makes another connection, so that no message of an earlier connection is sent late.
"""

import asyncio
import io
import json
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final, NamedTuple

import nats
import nats.errors
from nats.aio.client import Client, RawCredentials
from nats.aio.msg import Msg
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    ObjectMeta,
    RetentionPolicy,
    StorageType,
    StoreCompression,
    StreamConfig,
)
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NotFoundError
from nats.js.object_store import ObjectStore

from server.replication.log import SCHEMES, Access, Mark, Message, mark_of

ACK_S: Final = 2.0
"""The seconds in which the engine has to acknowledge a message, and to answer a request."""
CHECKPOINT_S: Final = 60.0
"""The seconds that the reading or writing of a checkpoint may take."""
SLOTS: Final = ("checkpoint-a", "checkpoint-b")
"""The names of the two checkpoints. A new checkpoint replaces the older of the two."""
_CLOSE_S: Final = 0.3
_CONNECT_S: Final = 2
_PING_S: Final = 2
_HEARTBEAT_S: Final = 5.0
_UNREAD_S: Final = 60.0
"""The seconds after which the engine forgets a reader that no longer reads."""
_HEADER_BYTES: Final = 1 << 12
"""The largest size in bytes of the headers of a message."""
_PART_BYTES_MAX: Final = 1 << 19
_WRONG_SEQUENCE: Final = 10071
_JWT: Final = "BEGIN NATS USER JWT"


class AwayError(Exception):
    """The error of an engine that cannot be reached or does not do what was asked. The text of the error gives the reason."""


class RefusedError(Exception):
    """The error of a message that the engine refused because another message came before it."""


class Tail(NamedTuple):
    """The end of a log: the numbers of its first and its last message, and the term of the last message.

    The term is "" if the log is empty.
    """

    first: int
    last: int
    term: str


class Held(NamedTuple):
    """A checkpoint in the object store. ``version`` differs for each checkpoint."""

    slot: str
    version: str
    mark: Mark


async def connect(access: Access, name: str) -> "Link":
    """Return a connection to the first server that answers, with stream and object store. Raise AwayError if no server answers."""
    why = ""
    for server in access.address.servers:
        client, met = Client(), list[Exception]()
        try:
            with _translated():
                async with asyncio.timeout(_CONNECT_S + 1):
                    options = _options(access, name, met)
                    await client.connect(f"{access.address.scheme}://{server}", **options)
                    return await _opened(client, access.address.name)
        except AwayError as error:
            why = f"{server}: {_text(met[0]) if met else error}"
            await _closed(client)
        except BaseException:
            await _closed(client)
            raise
    raise AwayError(why)


def _options(access: Access, name: str, met: list[Exception]) -> dict[str, Any]:
    """Return the options of a connection. Errors that occur on the connection are added to ``met``."""

    async def meet(error: Exception) -> None:
        met.append(error)

    options: dict[str, Any] = {
        "name": f"evenhand {name}",
        "allow_reconnect": False,
        "max_reconnect_attempts": 1,
        "reconnect_time_wait": 0,
        "connect_timeout": _CONNECT_S,
        "ping_interval": _PING_S,
        "max_outstanding_pings": 2,
        "error_cb": meet,
    }
    if access.address.scheme != SCHEMES[0] or access.authority:
        options["tls"] = ssl.create_default_context(cadata=access.authority or None)
    if _JWT in access.credentials:
        options["user_credentials"] = RawCredentials(access.credentials)
    elif access.credentials:
        options["nkeys_seed_str"] = access.credentials.strip()
    return options


async def _opened(client: Client, name: str) -> "Link":
    js = client.jetstream(timeout=ACK_S)
    stream, subject = f"evenhand-{name}", f"evenhand.{name}.input"
    try:
        await js.stream_info(stream)
    except NotFoundError:
        config = StreamConfig(
            name=stream,
            subjects=[subject],
            retention=RetentionPolicy.LIMITS,
            discard=DiscardPolicy.NEW,
            storage=StorageType.FILE,
            compression=StoreCompression.S2,
        )
        await js.add_stream(config)
    try:
        objects = await js.object_store(stream)
    except NotFoundError:
        objects = await js.create_object_store(stream)
    link = Link(client, js, objects, stream, subject)
    await link.open()
    return link


async def _closed(client: Client) -> None:
    """Close a connection, even if its opening was cancelled, and even if the engine no longer reads from it."""
    try:
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_S):
                await client.close()
    finally:
        # If `close` fails or is cancelled early, the client leaves the socket open.
        writer = getattr(client._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
    await asyncio.sleep(0)


@contextmanager
def _translated() -> Iterator[None]:
    """Turn errors of the NATS client, raised within the context, into AwayError or RefusedError."""
    try:
        yield
    except APIError as error:
        if error.err_code == _WRONG_SEQUENCE:
            raise RefusedError(error.description) from error
        raise AwayError(error.description or str(error)) from error
    except TimeoutError as error:
        raise AwayError("the engine does not answer in time") from error
    except (OSError, nats.errors.Error) as error:
        raise AwayError(_text(error)) from error
    except (AwayError, RefusedError):
        raise
    except Exception as error:
        # The client raises errors of many kinds when it is cut off. None of them may end the core.
        raise AwayError(repr(error)) from error


def _text(error: Exception) -> str:
    """Return an error as text."""
    text = (error.strerror if isinstance(error, OSError) else "") or str(error)
    return text.removeprefix("nats: ") or repr(error)


class Link:
    """A connection to the engine, for one log. Each method raises AwayError if the engine does not do what was asked."""

    def __init__(
        self, client: Client, js: JetStreamContext, objects: ObjectStore, stream: str, subject: str
    ) -> None:
        self._client = client
        self._js = js
        self._objects = objects
        self._stream = stream
        self._subject = subject
        self.part_bytes = min(client.max_payload - _HEADER_BYTES, _PART_BYTES_MAX)
        """The number of bytes of content that a message may have."""
        self._inbox = client.new_inbox()
        self._numbers = count(1)
        self._waiting: dict[str, asyncio.Future[Msg]] = {}

    async def open(self) -> None:
        """Start to receive the engine's acknowledgements of the messages that this connection sends."""
        await self._client.subscribe(f"{self._inbox}.*", cb=self._reply)

    async def _reply(self, message: Msg) -> None:
        future = self._waiting.pop(message.subject.rpartition(".")[2], None)
        if future is not None and not future.done():
            future.set_result(message)

    async def close(self) -> None:
        """Close this connection to the engine."""
        await _closed(self._client)

    async def tail(self) -> Tail:
        """Return the end of the log."""
        with _translated():
            state = (await self._js.stream_info(self._stream)).state
            if not state.messages:
                return Tail(state.last_seq + 1, state.last_seq, "")
            last = await self._js.get_msg(self._stream, seq=state.last_seq)
            message = Message(state.last_seq, last.headers or {}, b"")
            return Tail(state.first_seq, state.last_seq, message.term)

    async def last(self) -> int:
        """Return the number of the last message."""
        with _translated():
            return (await self._js.stream_info(self._stream)).state.last_seq

    async def publish(
        self, headers: Mapping[str, str], content: bytes, after: int
    ) -> "asyncio.Future[Msg]":
        """Send a message that is to follow the message ``after``. Return the future of its acknowledgement, for `acknowledged`.

        The publishing function of the NATS client is not used, because it loses the answers with which the engine refuses a
        message.
        """
        expected = {"Nats-Expected-Stream": self._stream, "Nats-Expected-Last-Sequence": str(after)}
        number = str(next(self._numbers))
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        reply = f"{self._inbox}.{number}"
        with _translated():
            await self._client.publish(
                self._subject, content, reply=reply, headers={**headers, **expected}
            )
        return future

    async def acknowledged(self, future: "asyncio.Future[Msg]") -> int:
        """Return the number of a message once the engine has stored it. Raise RefusedError if another message came before this message."""
        with _translated():
            async with asyncio.timeout(ACK_S):
                answer = await future
            if not answer.data:
                raise AwayError("the engine has no such log any longer")
            found = json.loads(answer.data)
            if "error" in found:
                APIError.from_error(found["error"])
            return int(found["seq"])

    async def append(self, headers: Mapping[str, str], after: int) -> int:
        """Write a message without content, and return its number. Raise RefusedError if the message would not follow ``after``."""
        return await self.acknowledged(await self.publish(headers, b"", after))

    async def read(self, after: int, silent_s: float) -> AsyncGenerator[Message | None, None]:
        """Yield the messages after the message ``after`` when they arrive. Yield None after ``silent_s`` seconds without a message."""
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=_UNREAD_S,
            mem_storage=True,
            num_replicas=1,
        )
        with _translated():
            subscription = await self._js.subscribe(
                self._subject,
                stream=self._stream,
                config=config,
                manual_ack=True,
                flow_control=True,
                idle_heartbeat=_HEARTBEAT_S,
            )
        try:
            while True:
                with _translated():
                    try:
                        found = await subscription.next_msg(silent_s)
                    except TimeoutError:
                        found = None
                if found is None:
                    yield None
                    continue
                number = found.metadata.sequence.stream
                yield Message(number, found.headers or {}, found.data)
        finally:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def checkpoints(self) -> list[Held]:
        """Return the checkpoints, the newest first."""
        found = []
        for slot in SLOTS:
            with _translated():
                try:
                    info = await self._objects.get_info(slot)
                except NotFoundError:
                    continue
            mark = mark_of(info.description or "")
            if mark is not None:
                found.append(Held(slot, info.nuid or "", mark))
        return sorted(found, key=lambda one: (one.mark.after, one.mark.made_ms), reverse=True)

    async def fetch(self, held: Held) -> bytes:
        """Return the bytes of a checkpoint."""
        file = io.BytesIO()
        with _translated():
            async with asyncio.timeout(CHECKPOINT_S):
                await self._objects.get(held.slot, writeinto=file)
        return file.getvalue()

    async def store(self, slot: str, data: bytes, mark: Mark) -> None:
        """Write a checkpoint into a slot, in place of the checkpoint that the slot holds."""
        with _translated():
            async with asyncio.timeout(CHECKPOINT_S):
                await self._objects.put(slot, data, ObjectMeta(description=mark.text()))

    async def trim(self, first: int) -> None:
        """Remove the messages before the message ``first``."""
        with _translated():
            if first > 1:
                await self._js.purge_stream(self._stream, seq=first)
