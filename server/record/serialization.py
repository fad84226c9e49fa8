"""The forms of the types of `server/model`. A form turns values into plain JSON values and back, according to type hints.

A form writes a value so that JSON can hold it, and reads back an equal value. Every field is written, so that another default in
a later version changes nothing. On reading, a missing field gets its default.
"""

import base64
import binascii
import dataclasses
import enum
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, Union, get_args, get_origin, get_type_hints

from server.record.canonical import Plain


class BadFormError(ValueError):
    """The error of a plain value that cannot be read: the path to the faulty part of the value, and the reason."""

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(f"{path}: {why}" if path else why)
        self.why = why
        self.path = path

    def under(self, name: str) -> "BadFormError":
        """Return the error with ``name`` put in front of its path."""
        return BadFormError(self.why, f"{name}.{self.path}" if self.path else name)


class Form(Protocol):
    """The form in which values of one type are written and read."""

    def write(self, value: Any, /) -> Plain:  # noqa: ANN401
        """Return the value as plain JSON values."""

    def read(self, plain: Plain, /) -> object:
        """Return the value that was written. Raise BadFormError for a plain value of another form."""


class Scalar:
    """The form of str, int or bool: the value itself in JSON."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def write(self, value: Any) -> Plain:  # noqa: ANN401
        """Return the value unchanged."""
        return value  # type: ignore[no-any-return]

    def read(self, plain: Plain) -> object:
        """Return the value unchanged. True is not accepted as a number."""
        if type(plain) is not self.kind:
            raise BadFormError(f"a {self.kind.__name__} was expected, not {_shown(plain)}")
        return plain


class Binary:
    """The form of bytes: Base64."""

    def write(self, value: bytes) -> Plain:
        """Return the bytes in Base64."""
        return binascii.b2a_base64(value, newline=False).decode("ascii")

    def read(self, plain: Plain) -> object:
        """Return the bytes that a text in Base64 encodes."""
        try:
            return base64.b64decode(plain, validate=True)  # type: ignore[arg-type]
        except (ValueError, TypeError) as error:
            raise BadFormError(f"{_shown(plain)} is not Base64") from error


class Word:
    """The form of an enumeration: the value of a member if the value is a string, else the name of the member."""

    def __init__(self, kind: type[enum.Enum]) -> None:
        self._words = {one: one.value if isinstance(one, str) else one.name for one in kind}
        self._members = {word: one for one, word in self._words.items()}

    def write(self, value: enum.Enum) -> Plain:
        """Return the word for a member of the enumeration."""
        return self._words[value]

    def read(self, plain: Plain) -> object:
        """Return the member of the enumeration whose word this is."""
        if not isinstance(plain, str) or plain not in self._members:
            raise BadFormError(f"{_shown(plain)} is none of {', '.join(self._members)}")
        return self._members[plain]


class Maybe:
    """The form of a value or None."""

    def __init__(self, inner: Form) -> None:
        self._inner = inner

    def write(self, value: object) -> Plain:
        """Return None for None, and the written value for any other value."""
        return None if value is None else self._inner.write(value)

    def read(self, plain: Plain) -> object:
        """Return None for null, and the value that was read for any other plain value."""
        return None if plain is None else self._inner.read(plain)


class Several:
    """The form of a tuple or frozen set of values of one type. The values of a set are sorted first."""

    def __init__(self, inner: Form, make: Callable[[Iterable[Any]], object]) -> None:
        self._inner = inner
        self._make = make

    def write(self, value: Iterable[Any]) -> Plain:
        """Return the values as a list."""
        ordered = value if isinstance(value, tuple) else sorted(value)
        return [self._inner.write(one) for one in ordered]

    def read(self, plain: Plain) -> object:
        """Return the values of a list, each read with the form of the items."""
        if not isinstance(plain, list):
            raise BadFormError(f"a list was expected, not {_shown(plain)}")
        return self._make(_each(enumerate(plain), self._inner))


class Pairs:
    """The form of a mapping from words, or of a tuple of pairs that begin with words.

    The form is an object if the pairs are sorted by word and no word occurs twice. Nearly all pairs are written as an object. All
    other pairs are written as a list of pairs.
    """

    def __init__(self, inner: Form, make: Callable[[Iterable[Any]], object]) -> None:
        self._inner = inner
        self._make = make

    def write(self, value: Any) -> Plain:  # noqa: ANN401
        """Return the pairs as an object or a list."""
        pairs = list(value.items()) if isinstance(value, Mapping) else list(value)
        written = [(word, self._inner.write(one)) for word, one in pairs]
        words = [word for word, _ in pairs]
        return dict(written) if words == sorted(set(words)) else [list(pair) for pair in written]

    def read(self, plain: Plain) -> object:
        """Return the pairs in their original order."""
        if isinstance(plain, dict):
            pairs = sorted(plain.items())
        elif isinstance(plain, list) and all(map(_is_pair, plain)):
            pairs = [(word, one) for word, one in plain]
        else:
            raise BadFormError(f"an object or a list of pairs was expected, not {_shown(plain)}")
        values = _each(pairs, self._inner)
        return self._make(zip((word for word, _ in pairs), values, strict=True))


class Anything:
    """The form of `object`: a string, a whole number, a truth value, None, or a tuple of these."""

    def write(self, value: object) -> Plain:
        """Return a tuple as an object, so that it differs from a list. Return any other value unchanged."""
        if isinstance(value, tuple):
            return {"tuple": [self.write(one) for one in value]}
        assert value is None or isinstance(value, str | int), f"{value!r} has no form"
        return value

    def read(self, plain: Plain) -> object:
        """Return the original value."""
        if isinstance(plain, dict) and isinstance(plain.get("tuple"), list):
            return tuple(map(self.read, plain["tuple"]))
        if isinstance(plain, dict | list):
            raise BadFormError(f"{_shown(plain)} is no plain value")
        return plain


class Fields:
    """The form of a dataclass or NamedTuple: an object with all its fields."""

    def __init__(self, kind: type[Any], of: Callable[[object], Form]) -> None:
        self._kind = kind
        hints = get_type_hints(kind)
        self._forms = {name: of(hints[name]) for name in _names(kind)}
        self._needed = _needed(kind)
        self._direct = [
            (name, None if isinstance(form, Scalar) else form.write)
            for name, form in self._forms.items()
        ]

    def write(self, value: object) -> dict[str, Plain]:
        """Return an object with the written value of every field, by the field's name."""
        return {
            name: getattr(value, name) if write is None else write(getattr(value, name))
            for name, write in self._direct
        }

    def read(self, plain: Plain) -> object:
        """Return the value. Missing fields get their defaults, and unknown fields are an error."""
        if not isinstance(plain, dict):
            raise BadFormError(f"an object was expected, not {_shown(plain)}")
        strange = sorted(plain.keys() - self._forms.keys())
        if strange:
            raise BadFormError(f"there is no field {strange[0]!r}")
        missing = [name for name in self._needed if name not in plain]
        if missing:
            raise BadFormError(f"the field {missing[0]!r} is missing")
        return self._kind(**{name: _one(name, self._forms[name], plain[name]) for name in plain})


_SCALARS: Final = (str, int, bool)


class Forms:
    """The maker of forms by type hint. Each form is made once. ``own`` maps types to the forms that replace the standard ones."""

    def __init__(self, own: Mapping[object, Form] | None = None) -> None:
        self._made: dict[object, Form] = dict(own or {})

    def of(self, hint: object) -> Form:
        """Return the form of a type hint. Raise TypeError for a hint without a form, which is a defect."""
        if hint not in self._made:
            # The form of a queue refers to itself, because queues contain queues. The promise is therefore registered
            # before the form is complete.
            promise = self._made[hint] = Promise()
            promise.form = self._made[hint] = self._make(hint)
        return self._made[hint]

    def _make(self, hint: Any) -> Form:  # noqa: ANN401
        if hint in _SCALARS:
            return Scalar(hint)
        if hint is bytes:
            return Binary()
        if hint is object:
            return Anything()
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return Word(hint)
        if dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"):
            return Fields(hint, self.of)
        return self._compound(hint)

    def _compound(self, hint: object) -> Form:
        origin, parts = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType) and len(parts) == 2 and parts[1] is type(None):  # noqa: PLR2004
            return Maybe(self.of(parts[0]))
        if origin is tuple and len(parts) == 2 and parts[1] is ...:  # noqa: PLR2004
            pair = get_args(parts[0])
            if get_origin(parts[0]) is tuple and pair[0] is str and len(pair) == 2:  # noqa: PLR2004
                return Pairs(self.of(pair[1]), tuple)
            return Several(self.of(parts[0]), tuple)
        if origin is frozenset:
            return Several(self.of(parts[0]), frozenset)
        if isinstance(origin, type) and issubclass(origin, Mapping) and parts[0] is str:
            return Pairs(self.of(parts[1]), dict)
        raise TypeError(f"{hint!r} has no form")


class Promise:
    """A form that refers to another form, which is still being made."""

    form: Form

    def write(self, value: object) -> Plain:
        """Return the result of `write` of the form to which this promise refers."""
        return self.form.write(value)

    def read(self, plain: Plain) -> object:
        """Return the result of `read` of the form to which this promise refers."""
        return self.form.read(plain)


def _names(kind: type[Any]) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(kind._fields)


def _needed(kind: type[Any]) -> list[str]:
    """Return the names of a type's fields that have no default."""
    if dataclasses.is_dataclass(kind):
        none = dataclasses.MISSING
        return [
            field.name
            for field in dataclasses.fields(kind)
            if field.default is none and field.default_factory is none
        ]
    return [name for name in kind._fields if name not in kind._field_defaults]


def _one(name: str, form: Form, plain: Plain) -> object:
    try:
        return form.read(plain)
    except BadFormError as error:
        raise error.under(name) from error


def _each(pairs: Iterable[tuple[object, Plain]], form: Form) -> list[object]:
    return [_one(str(name), form, plain) for name, plain in pairs]


def _is_pair(plain: object) -> bool:
    return isinstance(plain, list) and len(plain) == 2 and isinstance(plain[0], str)  # noqa: PLR2004


def _shown(plain: object) -> str:
    text = repr(plain)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


_SHOWN_MAX: Final = 60
