"""The YAML of a recipe file: two levels, every value still text, each with its place.

Beside its sections a file may name the recipe that it differs from: `extends: base`.

Read from the parser's events, so that nothing is guessed: YAML 1.1 would make `no` false, `010` eight and `5e-4`
text. Anchors, tags, lists and deeper levels have no meaning in a recipe and are refused.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from aiayn_cli.errors import ConfigError, did_you_mean

NULL = ("", "~", "null", "Null", "NULL")  # YAML's ways to write no value

EXTENDS = "extends"  # the one key beside the sections

Known = Mapping[str, Collection[str]]  # the names of the settings, by section


@dataclass(frozen=True)
class Setting:
    """One value as it was written, and where."""

    key: str  # section.name
    text: str
    quoted: bool
    place: str  # "FILE:LINE" or "--set ..."


@dataclass(frozen=True)
class RecipeFile:
    """What one file says.

    Attributes:
        settings: by key ("section.name").
        section_places: where each section begins.
        extends: the recipe whose settings hold where this one says nothing; None where there is none.
    """

    settings: dict[str, Setting]
    section_places: dict[str, str]
    extends: Setting | None


def read_recipe_file(path: Path, known: Known) -> RecipeFile:
    """Read the settings of a file.

    Args:
        path: a YAML file.
        known: the names that may occur.
    Raises:
        ConfigError: the file cannot be read, is not such YAML, or names what is not known or was given before.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", "check the file's permissions") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"{path}:{line}: byte {error.start} (0x{content[error.start]:02X}) is not UTF-8"
        raise ConfigError(problem, "save the recipe as UTF-8 text") from error
    try:
        return _read_sections(yaml.parse(text, Loader=yaml.SafeLoader), path, known)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        hint = (
            "indent with blanks, not with tabs"
            if "\\t" in str(error.problem)
            else "write `section:`, then `  key: value`"
        )
        raise ConfigError(f"{place}: not YAML: {error.problem}", hint) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"{path}:{line}: the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        raise ConfigError(problem, "remove it") from error


def _read_sections(events: Iterator[Any], path: Path, known: Known) -> RecipeFile:
    """Walk through the parser's events: a mapping of sections, each a mapping of settings."""
    found = RecipeFile({}, {}, None)
    start = next((event for event in events if isinstance(event, yaml.NodeEvent)), None)
    if start is None or (isinstance(start, yaml.ScalarEvent) and start.value == ""):
        raise ConfigError(f"{path}: the recipe is empty", f"start with a section: {', '.join(known)}")
    _expect(yaml.MappingStartEvent, start, path, "a recipe")
    for section, place in _read_keys(events, path, "", known):
        event = next(events)
        if section == EXTENDS:
            _expect(yaml.ScalarEvent, event, path, section)
            found = replace(found, extends=Setting(section, event.value, event.style is not None, place))
            continue
        found.section_places[section] = place
        _expect(yaml.MappingStartEvent, event, path, f"section {section}")
        for key, _ in _read_keys(events, path, section, known):
            event = next(events)
            _expect(yaml.ScalarEvent, event, path, key)
            found.settings[key] = Setting(key, event.value, event.style is not None, _place(path, event))
    for event in events:  # to the end, so that a fault after the last section is found too
        if isinstance(event, yaml.DocumentStartEvent):
            raise ConfigError(f"{_place(path, event)}: a second YAML document begins", "keep one recipe in one file")
    return found


def _read_keys(events: Iterator[Any], path: Path, section: str, known: Known) -> Iterator[tuple[str, str]]:
    """Yield each key of a mapping with its place; the caller takes the value's events before it goes on."""
    names = known[section] if section else (*known, EXTENDS)
    seen: dict[str, str] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        place = _place(path, event)
        _expect(yaml.ScalarEvent, event, path, "a key")
        key = f"{section}.{event.value}" if section else event.value
        if event.value not in names:
            what = "setting" if section else "section"
            raise ConfigError(f"{place}: unknown {what} {key}", suggest_name(event.value, section, known))
        if key in seen:
            raise ConfigError(f"{place}: {key} was already given at {seen[key]}", "keep one of the two")
        seen[key] = place
        yield key, place


def _expect(kind: type[yaml.NodeEvent], event: Any, path: Path, what: str) -> None:
    place = _place(path, event)
    if isinstance(event, yaml.AliasEvent) or event.anchor:
        raise ConfigError(f"{place}: {what} has an anchor or alias ({event.anchor})", "write the value itself")
    if event.tag:
        raise ConfigError(f"{place}: {what} has a tag ({event.tag})", "remove it; the setting decides the type")
    if isinstance(event, kind):
        return
    found = {yaml.SequenceStartEvent: "a list", yaml.MappingStartEvent: "a mapping", yaml.ScalarEvent: "a single value"}
    problem = f"{place}: {what} is {found[type(event)]}"
    if kind is yaml.ScalarEvent:
        raise ConfigError(f"{problem}, but must be a single value", "write `name: value`")
    if isinstance(event, yaml.ScalarEvent) and event.value in NULL:
        raise ConfigError(f"{place}: {what} is empty", "remove it, or indent its settings below it")
    inside = "sections" if what == "a recipe" else "settings"
    raise ConfigError(f"{problem}, but must hold {inside}", f"write `name:`, and the {inside} below it, indented")


def _place(path: Path, event: Any) -> str:
    return f"{path}:{event.start_mark.line + 1}"


def suggest_name(name: str, section: str, known: Known) -> str:
    """Write the hint for an unknown name: of a setting in `section`, or of a section where that is ""."""
    elsewhere = [f"{other}.{name}" for other, names in known.items() if name in names]
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere)}?"
    return did_you_mean(name, known[section] if section else (*known, EXTENDS))
