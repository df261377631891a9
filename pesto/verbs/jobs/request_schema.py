"""JSON Schema of a request, by kind: the fields that go with each, which of them must be there, and its settings."""

from functools import reduce
from operator import or_
from typing import Any, get_args, get_type_hints

import msgspec

from pesto.core.option import options_of
from pesto.core.settings import Settings
from pesto.verbs.jobs.checks import fields_of, needed_of, settings_of
from pesto.verbs.jobs.request import JobRequest, Kind


def request_schema(refs: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of all kinds, and those that it refers to, by name; `refs` makes of {name} what refers to it.

    What it admits can still be refused: names that are not known, values out of range, files that are not there.
    """
    kinds = [_of(kind) for kind in get_args(Kind)]
    (schema,), parts = msgspec.json.schema_components([reduce(or_, kinds)], ref_template=refs)
    return schema, parts


def _of(kind: Kind) -> Any:
    """A type of requests of one kind alone."""
    some = _settings(f"{kind.capitalize()}Settings", settings_of(kind))
    made = _some(f"{kind.capitalize()}Job", JobRequest, fields_of(kind), needed_of(kind), tag=kind, settings=some)
    made.__doc__ = f"A job of the kind {kind}."
    return made


def _settings(name: str, some: tuple[str, ...]) -> Any:
    """A type of some options of a solve, with their bounds and texts; each may be left out, or null."""
    options = [option for option in options_of(Settings) if option.name in some]
    fields = [(option.name, option.checked_kind | None, None) for option in options]
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


def _some(
    name: str, whole: type[msgspec.Struct], fields: tuple[str, ...], needed: tuple[str, ...], tag: str | None = None,
    **others: type[msgspec.Struct],
) -> Any:  # fmt: skip
    """A type like `whole` with these fields alone, of other types where `others` says so."""
    hints, found = get_type_hints(whole, include_extras=True), list[tuple[Any, ...]]()
    for field in msgspec.structs.fields(whole):
        if field.name in needed:
            hint = hints[field.name]
            without_none = reduce(or_, [one for one in get_args(hint) if one is not type(None)])
            found.append((field.name, without_none))
        elif field.name in others:
            found.append((field.name, others[field.name], msgspec.field(default_factory=others[field.name])))
        elif field.name in fields and field.name != "kind":
            found.append((field.name, hints[field.name], field.default))
    return msgspec.defstruct(
        name, found, tag=tag, tag_field=None if tag is None else "kind", kw_only=True, forbid_unknown_fields=True
    )
