"""ConfigMaps as flat settings: plain texts, and compressed texts whose key ends in `.gz`."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Mapping

from shim_client.config import CONFIG_BYTES_MAX
from shim_client.translate.fields import Fields

CONFIG_MAPS = ("yunikorn-defaults", "yunikorn-configs")
"""Names of the ConfigMaps with settings; the second one takes precedence."""
_PACKED = ".gz"
_GZIP = 31


def merged(found: Iterable[Fields]) -> tuple[dict[str, str], list[str]]:
    """Return the merged settings of the ConfigMaps named in CONFIG_MAPS, and the entries that cannot be read.

    If a key occurs in two ConfigMaps, the ConfigMap that is named later takes precedence. Within one ConfigMap, the compressed
    text takes precedence over the plain text.
    """
    by_name = {name_of(item): item for item in found}
    flat: dict[str, str] = {}
    problems: list[str] = []
    for name in CONFIG_MAPS:
        if name in by_name:
            flat.update(_texts(by_name[name]))
            flat.update(_unpacked(by_name[name], problems))
    return flat, problems


def name_of(item: Fields) -> str:
    """Return the ConfigMap's name."""
    metadata = item.get("metadata")
    return str(metadata.get("name")) if isinstance(metadata, dict) else ""


def _texts(item: Fields) -> Mapping[str, str]:
    return {key: value for key, value in _map(item, "data").items() if isinstance(value, str)}


def _unpacked(item: Fields, problems: list[str]) -> dict[str, str]:
    found = {}
    for key, value in _map(item, "binaryData").items():
        name = str(key)  # In a manifest file, a key may have any type.
        if not name.endswith(_PACKED):
            continue
        try:
            found[name.removesuffix(_PACKED)] = _gunzipped(str(value))
        except (ValueError, binascii.Error, zlib.error) as bad:
            problems.append(f"{name_of(item)}: binaryData {name[:80]!r} cannot be unpacked: {bad}")
    return found


def _gunzipped(value: str) -> str:
    """Return the decompressed text. Raises ValueError when the data is not text, is incomplete or is too large."""
    unpacker = zlib.decompressobj(_GZIP)
    content = unpacker.decompress(base64.b64decode(value, validate=True), CONFIG_BYTES_MAX)
    if not unpacker.eof:
        raise ValueError(f"it is cut off, or more than {CONFIG_BYTES_MAX} bytes")
    return content.decode()


def _map(item: Fields, key: str) -> Mapping[str, object]:
    value = item.get(key)
    return value if isinstance(value, dict) else {}
