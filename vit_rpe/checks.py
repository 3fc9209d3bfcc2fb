"""Checks of the values people give, in one wording for every option: types, ranges, and names with the closest one."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from functools import cache, wraps
from math import isfinite
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin

WORDS = {bool: "True or False", int: "an integer", float: "a finite number", str: "a string", NoneType: "None"}


def plain(value: Any) -> Any:
    """A number of NumPy or torch as Python's own, in tuples, lists and mappings too; anything else as it is."""
    if isinstance(value, (tuple, list)):
        return type(value)(map(plain, value)) if type(value) in (tuple, list) else value
    if isinstance(value, dict):
        return {plain(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, int):  # a length may be a symbol of a compiled graph, which cannot be asked for attributes
        return value
    return value.item() if getattr(value, "shape", None) == () and callable(getattr(value, "item", None)) else value


def checked(
    *, least: Mapping[str, int] = MappingProxyType({}), positive: Collection[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a constructor or method: numbers of NumPy and torch arrive as Python's own, an argument that is
    none is told with the closest one, and values are judged by their annotations. Tuples are not: what they are for
    says more.

    Args:
        least: the smallest value of arguments that are integers.
        positive: arguments that must be numbers above 0, or None where they may be.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @cache
        def annotations() -> dict[str, Any]:
            return inspect.get_annotations(function, eval_str=True)

        @wraps(function)
        def judged(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                given = signature.bind(self, *args, **kwargs)
            except TypeError as error:
                of = "" if function.__name__ == "__init__" else f".{function.__name__}"
                raise argument_error(f"{type(self).__name__}{of}", error, function) from error
            for name, value in given.arguments.items():
                if name == "self" or signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                    continue
                given.arguments[name] = value = plain(value)
                if name in least and not (value is None and _fits(None, annotations()[name])):
                    check_count(name, value, least[name])
                if all(get_origin(kind) is not tuple for kind in get_args(annotations().get(name))):
                    check_type(name, value, annotations().get(name))
                if name in positive and value is not None and not value > 0:
                    raise ValueError(f"{name} must be positive, got {value!r}")
            return function(*given.args, **given.kwargs)

        return judged

    return decorate


def check_type(name: str, value: object, expected: Any) -> None:
    """Raise ValueError unless ``value`` is what the annotation ``expected`` says.

    A bool is no number, an integer may stand for a float, and a float must be finite. Tuples are judged entry by entry,
    and a list may stand for one.
    An annotation made of other types, or none (``inspect.Parameter.empty``), is not judged.
    """
    if not _fits(value, expected):
        raise ValueError(f"{name} must be {_words(expected)}, got {value!r}")


def check_count(name: str, value: object, least: int = 1) -> None:
    """Raise ValueError unless ``value`` is an integer of at least ``least``."""
    if not _fits(value, int) or value < least:  # type: ignore[operator]
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def check_rates(**rates: object) -> None:
    """Raise ValueError unless every rate, by its name, is a number p with 0 <= p < 1."""
    for name, value in rates.items():
        if not _fits(value, float) or not 0 <= value < 1:  # type: ignore[operator]
            raise ValueError(f"{name} must be a number p with 0 <= p < 1, got {value!r}")


def check_within(name: str, value: object, low: float, high: float) -> None:
    """Raise ValueError unless ``value`` is a number from ``low`` to ``high``."""
    given = plain(value)
    if not _fits(given, float) or not low <= given <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")


def check_index(what: str, given: object, count: int, whose: str, *, from_end: bool = False) -> int:
    """The number of a ``what`` of which there are ``count``, as one from 0 up.

    Args:
        whose: who has them, for the message.
        from_end: negative numbers count from the end.

    Raises:
        ValueError: no integer, or none of the numbers.
    """
    number = plain(given)
    if not _fits(number, int):
        raise ValueError(f"{what} must be an integer, got {given!r}")
    if not count:
        raise ValueError(f"{what} {number} does not exist: {whose} has no {what}")
    if not (-count if from_end else 0) <= number < count:
        raise ValueError(f"{what} {number} does not exist: {whose} has {count} {what}s, 0 to {count - 1}")
    return int(number % count)


def check_indices(what: str, given: object, count: int, whose: str, *, from_end: bool = False) -> list[int]:
    """:func:`check_index` of every number given, at least one; all there are where None is given."""
    if given is None:
        return list(range(count))
    try:
        found = [] if isinstance(given, (str, bytes, Mapping)) else list(given)  # type: ignore[call-overload]
    except TypeError:
        found = []
    if not found:
        raise ValueError(f"{what}s must be a list of one number or more, got {given!r}; leave it out for all")
    return [check_index(what, number, count, whose, from_end=from_end) for number in found]


def _fits(value: object, expected: Any) -> bool:
    if get_origin(expected) in (Union, UnionType):
        return any(_fits(value, choice) for choice in get_args(expected))
    if get_origin(expected) is tuple:
        items = get_args(expected)
        if not isinstance(value, (tuple, list)):
            return False
        each = items[:1] * len(value) if items[-1] is Ellipsis else items
        return len(value) == len(each) and all(map(_fits, value, each))
    if expected is None or expected is NoneType:
        return value is None
    if expected is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if expected in (bool, str):
        return isinstance(value, expected)
    return True


def _words(expected: Any) -> str:
    if get_origin(expected) in (Union, UnionType):
        return " or ".join(_words(choice) for choice in get_args(expected))
    if get_origin(expected) is tuple:
        return f"a tuple (each {_words(get_args(expected)[0])})"
    return WORDS.get(NoneType if expected is None else expected, str(expected))


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that a name has changed; by default the caller of the function that calls this is shown."""
    warnings.warn(f"{old} is now {new}; the old name goes in the next release", DeprecationWarning, stacklevel)


def closest(given: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing where no known name is close; capitals do not matter."""
    by_lower = {name.lower(): name for name in known}
    matches = get_close_matches(given.lower(), list(by_lower), n=1, cutoff=0.5)
    return f" (did you mean {by_lower[matches[0]]!r}?)" if matches else ""


def unknown_name(what: str, given: object, known: Iterable[str]) -> ValueError:
    """The error for a value of ``what`` that is not one of the ``known`` names."""
    known = list(known)
    hint = closest(str(given), known)
    return ValueError(f"unknown {what} {given!r}{hint}; known: {', '.join(map(str, known))}")


def check_choice(what: str, given: object, known: Iterable[object]) -> None:
    """Raise ValueError with the closest match unless ``given`` is one of ``known``; ``what`` names the option."""
    names = list(known)
    if given not in names:
        raise unknown_name(what, given, [str(name) for name in names])


class UnknownArgument(ValueError):
    """A call with an argument that does not exist."""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"{what} has no argument {name!r}{closest(name, known)}")
        self.name, self.known = name, tuple(known)

    def of(self, what: str) -> UnknownArgument:
        """The same about something else, such as the name that people gave."""
        return UnknownArgument(what, self.name, self.known)


def argument_error(what: str, error: TypeError | UnknownArgument, function: Callable[..., object]) -> Exception:
    """The error to raise where calling ``function`` ended in ``error``: one with the closest argument if it does not
    know one that was given, else ``error`` itself."""
    if isinstance(error, UnknownArgument):
        return error.of(what)
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if found is None:
        return error
    known = [name for name in inspect.signature(function).parameters if name not in ("self", "kwargs")]
    return UnknownArgument(what, found[1], known)
