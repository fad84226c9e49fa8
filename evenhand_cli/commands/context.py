"""The commands `evenhand context`: named cores in the user's configuration file."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from evenhand_cli import terminal
from evenhand_cli.connect import check_pair, checked_addresses
from evenhand_cli.contexts import (
    FIELDS,
    FILE_FIELDS,
    Context,
    Contexts,
    changed,
    context_names,
    is_readable_by_others,
    read_contexts,
    write_contexts,
)
from evenhand_cli.faults import Fault
from evenhand_cli.lists import NoHeaders, Shape, sorting, write_listing
from evenhand_cli.output import Form, Output, show
from evenhand_cli.render.amounts import NOTHING
from evenhand_cli.render.columns import facts
from evenhand_cli.render.listing import Field, Listing

Row = tuple[str, Context, bool]

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of a context.", autocompletion=context_names),
]
COLUMNS: tuple[Field[Row], ...] = (
    Field("current", lambda one: "*" if one[2] else ""),
    Field("context", lambda one: one[0]),
    Field("core", lambda one: one[1].core or NOTHING),
    Field("tls", lambda one: "yes" if one[1].tls_ca or one[1].tls_cert else "no", 1),
    Field("token file", lambda one: one[1].token_file, 2),
)


def list_contexts(
    output: Output = Form.TABLE,
    sort_by: Annotated[str, sorting("context", COLUMNS)] = "",
    no_headers: NoHeaders = False,
) -> None:
    """List the contexts; a star marks the current one.

    Examples:
        evenhand context list

    """
    found = read_contexts()
    rows = [(name, one, name == found.current) for name, one in found.known.items()]
    none = f"No contexts in {found.file}; make one: evenhand context set NAME --core HOST:PORT"
    file = {"file": str(found.file)}
    listing = Listing("contexts", rows, COLUMNS, lambda one: one[0], _value, file, none=none)
    write_listing(listing, Shape(output, sort_by, not no_headers))


def _value(row: Row) -> dict[str, object]:
    name, context, current = row
    values = context.values()
    return {"name": name, "current": current, **{key: values.get(key, "") for key in FIELDS}}


def show_context(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of a context; the current context when not given.",
            autocompletion=context_names,
        ),
    ] = "",
    output: Output = Form.TABLE,
) -> None:
    """Show a context and the file that holds it.

    Examples:
        evenhand context show
        evenhand context show production -o json

    """
    found = read_contexts()
    chosen = name or found.current
    if not chosen:
        raise _none(found)
    context = found.named(chosen, "argument NAME")
    value = _value((chosen, context, chosen == found.current)) | {"file": str(found.file)}
    told = [("context", chosen), *context.values().items(), ("file", str(found.file))]
    show(output, value, lambda _: facts(told))


def use(name: Name) -> None:
    """Make a context the current one.

    Examples:
        evenhand context use production

    """
    found = read_contexts()
    found.named(name, "argument NAME")
    write_contexts(replace(found, current=name))
    terminal.say(f"{name} is the current context")


def delete(name: Name) -> None:
    """Delete a context.

    Examples:
        evenhand context delete test

    """
    found = read_contexts()
    found.named(name, "argument NAME")
    known = {key: one for key, one in found.known.items() if key != name}
    write_contexts(
        replace(found, known=known, current="" if found.current == name else found.current)
    )
    terminal.say(f"{name} is deleted")


def _option(name: str, metavar: str, help_: str) -> Any:  # noqa: ANN401 - this type depends on Typer's version
    return typer.Option(f"--{name}", metavar=metavar, help=help_)


def set_context(
    name: Name,
    core: Annotated[str | None, _option("core", "HOST:PORT", "Address of the core.")] = None,
    tls_ca: Annotated[
        str | None,
        _option("tls-ca", "FILE", "File with the certificate authority of the core's certificate."),
    ] = None,
    tls_cert: Annotated[
        str | None, _option("tls-cert", "FILE", "File with the client's certificate.")
    ] = None,
    tls_key: Annotated[
        str | None, _option("tls-key", "FILE", "File with the key of the client's certificate.")
    ] = None,
    tls_server_name: Annotated[
        str | None,
        _option(
            "tls-server-name",
            "NAME",
            "Name in the core's certificate, when it differs from the host.",
        ),
    ] = None,
    token_file: Annotated[
        str | None, _option("token-file", "FILE", "File with the token that decides the role.")
    ] = None,
) -> None:
    """Create a context, or change fields of an existing one; an empty value unsets a field.

    The first context becomes the current one. Comments in the configuration file are lost.

    Examples:
        evenhand context set local --core 127.0.0.1:50051
        evenhand context set production --core core.example:50051 --tls-ca ca.crt
        evenhand context set production --token-file ada.token
        evenhand context set production --token-file ""

    """
    given = {
        "core": core,
        "tls-ca": tls_ca,
        "tls-cert": tls_cert,
        "tls-key": tls_key,
        "tls-server-name": tls_server_name,
        "token-file": token_file,
    }
    values = {
        key: str(Path(value).expanduser().absolute()) if value and key in FILE_FIELDS else value
        for key, value in given.items()
        if value is not None
    }
    if values.get("core"):
        checked_addresses(values["core"])
    after = changed(read_contexts(), name, values)
    context = after.known[name]
    check_pair(context.tls_cert, context.tls_key)
    write_contexts(after)
    _warn(context)
    terminal.say(f"{name} is written to {after.file}")


def _warn(context: Context) -> None:
    """Print warnings about missing files, and about a token that others can read."""
    for key, value in context.values().items():
        if key in FILE_FIELDS and not Path(value).exists():
            terminal.say(f"warning: there is no {value} ({key})")
    token = Path(context.token_file)
    if context.token_file and token.exists() and is_readable_by_others(token):
        terminal.say(f"warning: others can read {token}: `chmod 600 {token}`")


def _none(found: Contexts) -> Fault:
    return Fault(
        "no context is current",
        where=str(found.file),
        advice="choose one with `evenhand context use NAME`, or make one with `evenhand context set`",
    )


contexts = typer.Typer(
    help="Manage contexts: named cores with the files that give access to them.\n\nContexts are kept in "
    "~/.config/evenhand/config.yaml, or in the file that EVENHAND_CONFIG names. A command uses the "
    "current context unless --context or EVENHAND_CONTEXT names another one. Options and environment "
    "variables take precedence over the fields of the context.",
    no_args_is_help=True,
    add_completion=False,
)
contexts.command("list")(list_contexts)
contexts.command("show")(show_context)
contexts.command("use")(use)
contexts.command("set")(set_context)
contexts.command("delete")(delete)
