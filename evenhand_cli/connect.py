"""The connection to a core: address, TLS, token, deadline, and requests.

`asks_core` gives a command the connection options and a `Core` as its first argument.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Concatenate, NamedTuple, Protocol, TypeVar, cast

import grpc
import typer

from evenhand.v1 import replication_pb2, replication_pb2_grpc
from evenhand_cli import terminal
from evenhand_cli.combinations import refuse_together, refuse_without
from evenhand_cli.contexts import Context, attributes, context_names, read_contexts
from evenhand_cli.faults import ExitCode, Fault
from evenhand_cli.files import read_bytes, read_text
from evenhand_cli.follower_choice import is_follower
from evenhand_cli.rpc_faults import fault_of, refusal_of
from evenhand_cli.signatures import joined
from evenhand_cli.staleness import Pictures

DEFAULT_CORE = "127.0.0.1:50051"
DEFAULT_TIMEOUT_S = 30.0
FIND_S = 2.0
"""Seconds within which each of several cores has to answer whether it is the core that decides."""
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
PANEL = "Connection"

CoreAddress = Annotated[
    str,
    typer.Option(
        "--core",
        envvar="EVENHAND_CORE",
        metavar="HOST:PORT",
        help=f"Address of the core; of several, separated by commas, the one that decides is asked. {DEFAULT_CORE} "
        "when neither this option nor a context gives one.",
        rich_help_panel=PANEL,
    ),
]
CoresFile = Annotated[
    Path | None,
    typer.Option(
        "--cores",
        envvar="EVENHAND_CORES",
        metavar="FILE",
        help="Table that spreads partitions over groups of cores; all of them are asked, in place of --core.",
        rich_help_panel=PANEL,
    ),
]
ContextName = Annotated[
    str,
    typer.Option(
        "--context",
        envvar="EVENHAND_CONTEXT",
        metavar="NAME",
        help="Context of the user's configuration file; the current context when not given.",
        autocompletion=context_names,
        rich_help_panel=PANEL,
    ),
]
TlsServerName = Annotated[
    str,
    typer.Option(
        "--tls-server-name",
        envvar="EVENHAND_TLS_SERVER_NAME",
        metavar="NAME",
        help="Name in the core's certificate, when it differs from the host of --core.",
        rich_help_panel=PANEL,
    ),
]
TlsCa = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca",
        envvar="EVENHAND_TLS_CA",
        metavar="FILE",
        help="File with the certificate authority of the core's certificate; turns TLS on.",
        rich_help_panel=PANEL,
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        envvar="EVENHAND_TLS_CERT",
        metavar="FILE",
        help="File with the client's certificate; the name in it decides the role.",
        rich_help_panel=PANEL,
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        envvar="EVENHAND_TLS_KEY",
        metavar="FILE",
        help="File with the key of the client's certificate.",
        rich_help_panel=PANEL,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="EVENHAND_TOKEN_FILE",
        metavar="FILE",
        help="File with the token that decides the role.",
        rich_help_panel=PANEL,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        metavar="SECONDS",
        help="Longest time to wait for one answer; with --follow or --watch there may be longer times without one.",
        rich_help_panel=PANEL,
    ),
]

AtLeast = Annotated[
    str,
    typer.Option(
        "--at-least",
        metavar="POSITION",
        help="Oldest state to be shown: POSITION or POSITION@TERM of an earlier answer (`picture` in JSON). A follower waits "
        "up to 2 s for it, then refuses. With --cores: GROUP=POSITION for each group, separated by commas.",
        rich_help_panel=PANEL,
    ),
]
Metadata = tuple[tuple[str, str], ...]
"""The metadata of a call, by name."""
MIN_POSITION = "evenhand-min-position"
"""The key of the metadata that name the oldest state that an answer may show."""
_POSITION = re.compile(r"\d{1,18}(@[0-9A-Za-z]{1,64})?")

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Core:
    """An open connection to a core."""

    address: str
    channel: grpc.Channel
    timeout_s: float
    secure: bool = False
    metadata: tuple[tuple[str, str], ...] = ()
    pictures: Pictures = field(default_factory=Pictures, compare=False)
    silent: bool = False
    """Whether no notices are printed on the error stream while an answer takes long."""
    has_identity: bool = False
    """Whether the connection has a token or a client certificate, to which the core may give a role."""
    one_of_several: bool = False
    """Whether the options name several cores, so that another core may decide later."""
    follower: "Core | None" = None
    """The connection to a close follower of this core (`follower_choice`); None if there is none, or none was requested."""

    def patience(self, doing: str) -> AbstractContextManager[Callable[[str], None]]:
        """Return a context manager that prints a notice about the work in progress if its block takes long."""
        return nullcontext(_unsaid) if self.silent else terminal.patience(doing)

    def ask(
        self, method: "grpc.UnaryUnaryMultiCallable[Request, Response]", request: Request
    ) -> Response:
        """Send one request and return its answer; print a notice when the answer takes long.

        Raises Fault if the core does not answer or refuses.
        """
        with self.faults(), self.patience(f"waiting for {self.address}"):
            answer = method(request, timeout=self.timeout_s, metadata=self.metadata)
        self.pictures.look_at(answer)
        return answer

    def follow(
        self,
        method: "grpc.UnaryStreamMultiCallable[Request, Response]",
        request: Request,
        timeout_s: float | None = None,
        hold: Callable[[grpc.Call], None] | None = None,
    ) -> Iterator[Response]:
        """Yield the answers of a stream. ``hold`` gets the call, which another thread may cancel.

        The call has no deadline unless one is given. Raises Fault when the stream breaks.
        """
        with self.faults():
            call = method(request, timeout=timeout_s, metadata=self.metadata)
            if hold is not None:
                hold(call)
            try:
                for answer in call:
                    self.pictures.look_at(answer)
                    yield answer
            finally:
                call.cancel()

    def owning(self, partition: str) -> "Core":
        """Return a connection to the group that owns a partition.

        If there is only one group of cores, return this connection.
        """
        owner = getattr(self.channel, "owner", None)
        return self if owner is None else replace(self, channel=owner(partition))

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Convert the error of an RPC into a Fault."""
        try:
            yield
        except grpc.RpcError as error:
            raise fault_of(error, self.address, secure=self.secure) from error


def _unsaid(text: str) -> None:
    """Print nothing."""


Opener = Callable[[], AbstractContextManager["Core"]]
"""A function that opens the connection that the options describe. The returned context manager raises Fault if that fails."""


class FollowerOpener(Protocol):
    """An `Opener` that can also connect to a follower: a core that closely follows the core that decides."""

    def __call__(
        self, *, follower: bool = False, token: str = ""
    ) -> AbstractContextManager["Core"]:
        """Open the connection. With ``follower``, `Core.follower` of the connection is set if a core follows closely.

        With ``token``, this token replaces the token of the options when the cores are asked whether they decide or follow.
        """
        ...


def asks_core(command: Callable[Concatenate[Core, ...], None]) -> Callable[..., None]:
    """Return a command with the connection options; the command gets the open connection as its first argument."""

    def connected(opener: Opener, **rest: Any) -> None:  # noqa: ANN401
        with opener() as core:
            command(core, **rest)

    return opens_core(joined(command, connected, keep_first=True))


def opens_core(command: Callable[Concatenate[FollowerOpener, ...], None]) -> Callable[..., None]:
    """Return a command with the connection options; its first argument is a function that opens the connection."""

    def connected(
        core: CoreAddress = "",
        cores: CoresFile = None,
        context: ContextName = "",
        tls_ca: TlsCa = None,
        tls_cert: TlsCert = None,
        tls_key: TlsKey = None,
        tls_server_name: TlsServerName = "",
        token_file: TokenFile = None,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        at_least: AtLeast = "",
        **rest: Any,  # noqa: ANN401
    ) -> None:
        given = Context(
            core,
            str(tls_ca or ""),
            str(tls_cert or ""),
            str(tls_key or ""),
            tls_server_name,
            str(token_file or ""),
        )
        if cores is None:
            oldest = _min_position(at_least)

            def opened(*, follower: bool = False, token: str = "") -> AbstractContextManager[Core]:
                return connected_core(
                    given, context, timeout, oldest, follower=follower, token=token
                )

            command(opened, **rest)
        else:
            refuse_together("--cores", core=core)
            of_table = cores

            def spread(*, follower: bool = False, token: str = "") -> AbstractContextManager[Core]:
                del follower, token  # Each group is read at the core that decides.
                return connected_cores(of_table, given, context, timeout, at_least)

            command(spread, **rest)

    return joined(command, connected)


def _min_position(at_least: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that name the oldest state that an answer may show, or no metadata if no state is named.

    Raises Fault for a text that names no state.
    """
    if not at_least:
        return ()
    if not _POSITION.fullmatch(at_least):
        raise Fault(
            f"`{at_least}` is not a position",
            where="--at-least",
            advice="write POSITION or POSITION@TERM, as `evenhand replication` shows it",
            code=ExitCode.USAGE,
        )
    return ((MIN_POSITION, at_least),)


def _min_positions(at_least: str, groups: Sequence[str]) -> dict[str, Metadata]:
    """Return, for each group of cores, the metadata that name the oldest state that an answer may show.

    Raises Fault if an entry is not GROUP=POSITION, or names an unknown group or a group twice.
    """
    found: dict[str, Metadata] = {}
    for one in at_least.split(",") if at_least else ():
        group, equals, position = one.strip().partition("=")
        if not equals or group not in groups or group in found:
            raise Fault(
                f"`{one}` names no position of a group",
                where="--at-least",
                advice=f"write GROUP=POSITION once for each group, separated by commas; groups: {', '.join(groups)}",
                code=ExitCode.USAGE,
            )
        found[group] = _min_position(position)
    return found


class _Way(NamedTuple):
    """The way to reach a core: options and context, credentials, the metadata of each call, and the longest wait."""

    context: Context
    credentials: grpc.ChannelCredentials | None
    metadata: tuple[tuple[str, str], ...]
    timeout_s: float

    def open(self, address: str) -> grpc.Channel:
        """Return a channel to a core. Raises Fault when the address is not HOST:PORT."""
        return open_channel(address, self.credentials, self.context.tls_server_name)

    def deciding(self, listed: str) -> str:
        """Return the address of the core that decides, out of a comma-separated list. Raises Fault if an address is invalid.

        If no core decides, return the address of the first core that answers. If no core answers, return the first
        address.
        """
        addresses = checked_addresses(listed)
        if len(addresses) == 1:
            return addresses[0]
        answered: list[str] = []
        for address, answer in self._answers(addresses):
            if answer.state == "leader":
                return address
            answered.append(address)
        return (answered or addresses)[0]

    def deciding_and_follower(self, listed: str, token: str) -> tuple[str, str]:
        """Return the address of the core that decides, and that of the first core that follows it closely.

        The second address is "" if no core follows. Raises Fault for a bad address, or if cores refuse and none answers the caller.
        """
        addresses = checked_addresses(listed)
        if len(addresses) == 1:
            return addresses[0], ""
        refusals: list[Fault] = []
        answers = dict(self._answers(addresses, token, refusals))
        if refusals and not answers:
            raise refusals[0]
        leader = next((one for one, found in answers.items() if found.state == "leader"), "")
        if not leader:
            return next(iter(answers), addresses[0]), ""
        term = answers[leader].term
        return leader, next((one for one, it in answers.items() if is_follower(it, term)), "")

    def _answers(
        self, addresses: Sequence[str], token: str = "", refusals: list[Fault] | None = None
    ) -> "Iterator[tuple[str, replication_pb2.GetReplicationResponse]]":
        """Yield the address and state of each core that answers the caller. ``refusals`` gets a Fault for each core that refuses."""
        metadata = as_caller(self.metadata, token)
        request = replication_pb2.GetReplicationRequest()
        limit = min(self.timeout_s, FIND_S)
        for address in addresses:
            with self.open(address) as channel:
                stub = replication_pb2_grpc.ReplicationServiceStub(channel)
                try:
                    answer = stub.GetReplication(request, timeout=limit, metadata=metadata)
                except grpc.RpcError as error:
                    if refusals is not None and (fault := refusal_of(error, address)):
                        refusals.append(fault)
                    continue
            yield address, answer

    def core(self, address: str, channel: grpc.Channel) -> Core:
        """Return the connection over a channel."""
        return Core(
            address,
            channel,
            self.timeout_s,
            secure=self.credentials is not None,
            metadata=self.metadata,
            has_identity=bool(self.context.token_file or self.context.tls_cert),
        )


def _way(given: Context, name: str, timeout_s: float) -> _Way:
    """Return the way to the core that the options describe. Values that the options lack come from the context.

    Raises Fault if the context is unknown, if its files cannot be read, or if TLS options do not fit together.
    """
    context = resolved(given, name)
    files = (context.tls_ca, context.tls_cert, context.tls_key)
    credentials = channel_credentials(*map(_path, files))
    if credentials is None:
        refuse_without("--tls-ca", tls_server_name=context.tls_server_name)
    return _Way(context, credentials, bearer(_path(context.token_file)), timeout_s)


@contextmanager
def connected_core(
    given: Context,
    name: str,
    timeout_s: float,
    oldest: Metadata = (),
    *,
    follower: bool = False,
    token: str = "",
) -> Iterator[Core]:
    """Open a connection with the given options. Values that the options lack come from the context.

    ``oldest`` is metadata that name the oldest state to answer from. With ``follower``, also connect to a close follower, if any.
    With ``token``, the cores are asked with this token which of them decides. Raises Fault for invalid options.
    """
    way = _way(given, name, timeout_s)
    listed = way.context.core
    beside = ""
    if follower:
        address, beside = way.deciding_and_follower(listed, token)
    else:
        address = way.deciding(listed)
    with ExitStack() as stack:

        def opened(address: str) -> Core:
            core = way.core(address, stack.enter_context(way.open(address)))
            return replace(core, metadata=(*core.metadata, *oldest))

        yield replace(
            opened(address),
            one_of_several=len(checked_addresses(listed)) > 1,
            follower=opened(beside) if beside else None,
        )


@contextmanager
def connected_cores(
    file: Path, given: Context, name: str, timeout_s: float, at_least: str = ""
) -> Iterator[Core]:
    """Open a connection that combines the connections to the cores of all groups of a table.

    Raises Fault if the table cannot be read, or if an option or an address is invalid.

    ``at_least`` names, for each group, the oldest state from which the group may answer. If a group could not be
    reached, the command shows the answers of the other groups, and ends with the exit code `UNREACHABLE`.
    """
    # Loading these modules takes as long as a whole query, and most commands do not need them.
    from evenhand_cli.core_table import read_core_table  # noqa: PLC0415
    from evenhand_cli.spread_channel import Reached, SpreadChannel  # noqa: PLC0415

    table = read_core_table(file)
    everywhere = ",".join(one.addresses for one in table.groups)
    way = _way(replace(given, core=everywhere), name, timeout_s)

    def reach(addresses: str) -> Reached:
        address = way.deciding(addresses)
        return Reached(address, way.open(address))

    names = [one.name for one in table.groups]
    spread = SpreadChannel(
        table, reach, _min_positions(at_least, names), secure=way.credentials is not None
    )
    with closing(spread):
        yield way.core(f"cores {', '.join(names)}", cast("grpc.Channel", spread))
    if spread.missing:
        raise typer.Exit(ExitCode.UNREACHABLE)


def resolved(given: Context, name: str) -> Context:
    """Return the values of options and variables.

    Values that options and variables lack come from the named or the current context. If no context is named, and the
    options name another core than the current context, the current context is ignored, because the token of a context
    is meant only for its core. Raises Fault when the context does not exist.
    """
    context = read_contexts().chosen(name)
    if given.core and given.core != context.core and not name:
        context = Context()
    found = Context(**{**attributes(context), **attributes(given)})
    return found if found.core else replace(found, core=DEFAULT_CORE)


def _path(text: str) -> Path | None:
    return Path(text) if text else None


def open_channel(
    address: str, credentials: grpc.ChannelCredentials | None, server_name: str = ""
) -> grpc.Channel:
    """Return a channel that connects when it is first used. Raises Fault when the address is not HOST:PORT."""
    target = checked_address(address)
    options: list[tuple[str, Any]] = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]
    if credentials is None:
        return grpc.insecure_channel(target, options)
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    return grpc.secure_channel(target, credentials, options)


def checked_address(address: str, option: str = "--core or EVENHAND_CORE") -> str:
    """Return the address unchanged. Raises Fault when the address is not HOST:PORT. The fault names the option."""
    host, colon, port = address.rpartition(":")
    if not host or not colon or not port.isdecimal():
        raise Fault(
            f"`{address}` is not an address",
            where=option,
            advice=f"write HOST:PORT, such as {DEFAULT_CORE}",
            code=ExitCode.USAGE,
        )
    return address


def checked_addresses(text: str) -> list[str]:
    """Return the addresses of a comma-separated list. Raises Fault for an address that is not HOST:PORT."""
    return [checked_address(one.strip()) for one in text.split(",")]


def check_pair(cert: Path | str | None, key: Path | str | None) -> None:
    """Raise Fault when a certificate is given without a key, or a key without a certificate."""
    if bool(cert) != bool(key):
        raise Fault(
            "a certificate needs its key",
            where="--tls-key without --tls-cert" if key else "--tls-cert without --tls-key",
            advice="give both, or neither",
            code=ExitCode.USAGE,
        )


def channel_credentials(
    ca: Path | None, cert: Path | None, key: Path | None
) -> grpc.ChannelCredentials | None:
    """Return the credentials that the TLS options describe, or None if TLS is not used.

    Raises Fault when only a certificate or only a key is given, or when a file cannot be read.
    """
    check_pair(cert, key)
    if ca is None and cert is None:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=read_bytes(ca, "--tls-ca") if ca else None,
        private_key=read_bytes(key, "--tls-key") if key else None,
        certificate_chain=read_bytes(cert, "--tls-cert") if cert else None,
    )


def bearer(token_file: Path | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata with a token, or no metadata if there is no token file. Raises Fault for an unusable file."""
    if token_file is None:
        return ()
    return authorization(read_token(token_file))


def authorization(token: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata with a token, or no metadata if the token is empty."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def as_caller(metadata: Metadata, token: str) -> Metadata:
    """Return the metadata with ``token`` instead of another token; unchanged metadata if ``token`` is empty."""
    own = [one for one in metadata if not (token and one[0] == "authorization")]
    return (*own, *authorization(token))


def read_token(token_file: Path) -> str:
    """Return the token that a file contains. Raises Fault when the file cannot be read or contains no token."""
    token = read_text(token_file, "--token-file").strip()
    if not is_token(token):
        raise Fault(
            f"{token_file} holds no token",
            where="--token-file",
            advice="put one line of printable ASCII there: a token of the core's --tokens file",
        )
    return token


def is_token(text: str) -> bool:
    """Return whether a text can be a token: one line of printable ASCII."""
    return bool(text) and text.isascii() and text.isprintable()
