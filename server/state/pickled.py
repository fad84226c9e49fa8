"""Values of the core as bytes, from which another process makes equal values: checkpoints, and partitions that move (design 7.3, 7.9).

The bytes are pickles of Python. The reader accepts only plain containers and the classes of the pure core, which do no I/O. If the
bytes are forged, reading them can therefore run only constructors of such classes. Objects with an identity, such as nodes and asks,
refer to each other in chains, which become longer as the cluster grows. The writer therefore first writes each such object without
content, and writes the content in a later pickle. The depth of a pickle thus does not grow with the cluster.
"""

import copyreg
import enum
import functools
import io
import pickle
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO, Final, TypeVar

from server.state.copying import slots_of

PACKAGES: Final = ("model", "kernels", "snapshot", "preemption", "state", "scheduling", "core")
"""The packages of `server` whose classes a checkpoint may contain. These packages do no I/O."""
CONTENTS: Final = 1_000
"""The number of objects whose content is in one pickle."""
COMPRESSION: Final = 1
"""The compression level of zlib: the fastest. A compressed checkpoint is about a quarter as long as an uncompressed one."""

_PLAIN: Final = frozenset(
    {
        ("_codecs", "encode"),
        ("builtins", "bytearray"),
        ("builtins", "frozenset"),
        ("builtins", "set"),
        ("collections", "Counter"),
        ("collections", "OrderedDict"),
        ("collections", "defaultdict"),
        ("collections", "deque"),
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
    }
)
"""The names outside the core that a checkpoint may contain: containers and arrays, by module and name."""
_LENGTH: Final = struct.Struct("!I")

_T = TypeVar("_T")
Content = tuple[object, dict[str, Any]]
"""An object, and the values of its attributes by name."""


class BadCheckpointError(Exception):
    """The error that is raised if no value of the core can be made from bytes. The text says why."""


def frames_of(root: object, *before: object) -> Iterator[bytes]:
    """Yield the pickles of the plain values in ``before``, then the pickles of ``root``. No object may change meanwhile."""
    for one in before:
        yield pickle.dumps(one, pickle.HIGHEST_PROTOCOL)
    file = io.BytesIO()
    writer = _Writer(file)

    def dumped(value: object) -> bytes:
        file.seek(0)
        file.truncate()
        writer.dump(value)
        return file.getvalue()

    yield dumped(root)
    while contents := writer.contents(CONTENTS):
        yield dumped(contents)
    yield dumped([])


def packed(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pickles as compressed bytes, in parts."""
    packer = zlib.compressobj(COMPRESSION)
    for frame in frames:
        yield packer.compress(_LENGTH.pack(len(frame)) + frame)
    yield packer.flush()


def loaded(frames: "Frames", kind: type[_T]) -> _T:
    """Return the value that the next pickles hold.

    Raise BadCheckpointError if the value is not of the class ``kind``, or if the pickles do not belong together.
    """
    try:
        return _loaded(frames, kind)
    except BadCheckpointError:
        raise
    except Exception as error:
        # Any constructor can fail, each with its own error, if the bytes do not belong together.
        raise BadCheckpointError(f"its content does not fit together: {error!r}") from error


def _loaded(frames: "Frames", kind: type[_T]) -> _T:
    file = io.BytesIO()
    reader = Limited(file)

    def load() -> Any:  # noqa: ANN401 - any object of a core
        frame = frames.next()
        file.seek(0)
        file.truncate()
        file.write(frame)
        file.seek(0)
        return reader.load()

    root = load()
    if type(root) is not kind:
        raise BadCheckpointError(f"it holds no {kind.__name__.lower()}")
    while contents := load():
        for one, values in contents:
            for name, value in values.items():
                object.__setattr__(one, name, value)
    return root


class _Writer(pickle.Pickler):
    """A pickler that writes objects with an identity without their content.

    The pickler collects these objects, so that their content can be written later.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._empty: list[object] = []
        self._at = 0

    def contents(self, most: int) -> list[Content]:
        """Return up to ``most`` objects that were written without content, each with its content.

        Over all calls, each object is returned once. The list is empty when no object is left.
        """
        part = self._empty[self._at : self._at + most]
        self._at += len(part)
        return [(one, content(one)) for one in part]

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 - as pickle has it
        """Return the form in which pickle writes a value, for members of enumerations, read-only mappings and objects with an identity.

        For all other values, return NotImplemented, and pickle writes them as usual.
        """
        kind = type(value)
        if isinstance(value, enum.Enum):
            return kind, (value.value,)  # Some versions of Python write `getattr`.
        if kind is MappingProxyType:
            return _read_only, (dict(value),)
        if _has_identity(kind):  # type: ignore[arg-type]
            self._empty.append(value)
            return copyreg.__newobj__, (kind,)  # type: ignore[attr-defined]
        return NotImplemented


class Limited(pickle.Unpickler):
    """An unpickler that accepts only classes of the core and plain containers."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - a class or a function
        """Return the class or function that a checkpoint names.

        Raise BadCheckpointError unless the class is one of the core or a plain container.
        """
        if (module, name) == (_read_only.__module__, _read_only.__name__):
            return _read_only
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        if module.startswith(_PREFIXES):
            found = super().find_class(module, name)
            if isinstance(found, type) and (found.__module__, found.__qualname__) == (module, name):
                # The class must be defined in this module. A class that the module imports is
                # refused.
                return found
        raise BadCheckpointError(f"it names {module}.{name}, which is no part of a core")


class Frames:
    """The pickles of a checkpoint, decompressed as they are read. Before each pickle comes its length."""

    def __init__(self, file: BinaryIO, most: int | None = None) -> None:
        """Prepare to read the pickles of ``file``.

        If the decompressed pickles have more than ``most`` bytes, `next` raises BadCheckpointError.
        """
        self._file = file
        self._left = most
        self._unpacker = zlib.decompressobj()
        self._rest = b""

    def next(self) -> bytes:
        """Return the next pickle. Raise BadCheckpointError if no pickle is left."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return self._exactly(length)

    def end(self) -> None:
        """Raise BadCheckpointError unless the file ends after the last pickle that was read, and has the checksum of all data that was read."""
        try:
            while packed := self._file.read(1 << 16):
                self._rest += self._unpacker.decompress(packed, 1)
        except zlib.error as error:
            raise BadCheckpointError(f"it is damaged: {error}") from error
        if self._rest or self._unpacker.unused_data or not self._unpacker.eof:
            raise BadCheckpointError("it does not end with its last object")

    def _exactly(self, size: int) -> bytes:
        parts, have = [self._rest], len(self._rest)
        try:
            while have < size:
                packed = self._file.read(1 << 16)
                more = self._unpacker.decompress(packed) if packed else self._unpacker.flush()
                if not packed and not more:
                    raise BadCheckpointError("it is incomplete")
                parts.append(more)
                have += len(more)
                if self._left is not None:
                    self._left -= len(more)
                    if self._left < 0:
                        raise BadCheckpointError("it is too large")
        except zlib.error as error:
            raise BadCheckpointError(f"it is damaged: {error}") from error
        whole = b"".join(parts)
        self._rest = whole[size:]
        return whole[:size]


def content(value: object) -> dict[str, Any]:
    """Return the attributes of an object with an identity, by name.

    Attributes that are not set are left out.
    """
    held = dict(vars(value)) if hasattr(value, "__dict__") else {}
    for name in slots_of(type(value)):
        if hasattr(value, name):
            held[name] = getattr(value, name)
    return held


_PREFIXES: Final = tuple(f"server.{one}." for one in PACKAGES)


@functools.cache
def _has_identity(kind: type) -> bool:
    """Return whether objects of this class of the core are equal only to themselves.

    Such objects can be put into a set or a dictionary before they have their content.
    """
    return (
        kind.__module__.startswith(_PREFIXES)
        and vars(object)["__hash__"] is getattr(kind, "__hash__", None)
        and vars(object)["__eq__"] is getattr(kind, "__eq__", None)
        and not issubclass(kind, type)
    )


def _read_only(values: dict[Any, Any]) -> Mapping[Any, Any]:
    """Return a read-only view of a dictionary."""
    return MappingProxyType(values)
