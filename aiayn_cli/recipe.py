"""A recipe file and its overrides become one Recipe: strictly, and with file and line in every complaint.

A recipe is YAML with two levels: the sections and fields of recipe_keys.py. YAML's own guesses about types are not used
(it reads `5e-4` as text, `no` as false and `010` as eight); the field says what its value must be:

* a number is what it looks like (`5e-4`, `37_000`); a whole number has no point and no exponent,
* a switch is `true` or `false`, and nothing else,
* a text is taken as it is written, so `compile: off` is the text "off".

Anchors, tags, lists and deeper levels are refused. `extends: base` at the top level names the recipe to start from: a
bundled recipe, or a file in the same folder. Without it, recipe_keys.py's defaults hold.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml

from aiayn_cli.errors import ConfigError, did_you_mean
from aiayn_cli.recipe_keys import DataConfig, DecodingConfig, ModelConfig, Recipe, TrainingConfig

_SECTIONS: dict[str, Any] = {
    "data": DataConfig,
    "model": ModelConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}
_FIELDS = {name: {field.name: field for field in fields(section)} for name, section in _SECTIONS.items()}
_KEYS = [f"{section}.{key}" for section, keys in _FIELDS.items() for key in keys]
_EXTENDS = "extends"  # the one key next to the sections
# Settings of earlier versions; 0 in an old recipe is ignored.
_REMOVED = {"data.bpe_dropout": "prepare no longer splits words at random"}

_NULL = ("", "~", "null", "Null", "NULL")  # YAML's ways to write no value
_BOOLS = {
    **dict.fromkeys(("true", "yes", "on", "y", "1"), "true"),
    **dict.fromkeys(("false", "no", "off", "n", "0"), "false"),
}  # what people write for a switch, and what is meant
_NEEDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number"}
_WHOLE_NUMBER = re.compile(r"(?=.{1,20}$)[-+]?(0|[1-9][0-9]*(_[0-9]+)*)")  # 20 characters hold any 64-bit number
_NUMBER = re.compile(r"[-+]?([0-9]+(_[0-9]+)*(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


@dataclass(frozen=True)
class Setting:
    """One value as it was written, and where."""

    key: str  # section.name; a section's name alone for the line where it begins
    text: str
    place: str  # "FILE:LINE" or "--set ..."
    quoted: bool = False


_Settings = dict[str, Setting]  # by key


def recipe_names() -> list[str]:
    """The names of the recipes that come with the package."""
    folder = _bundled_folder()
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def run_name(name_or_path: str) -> str:
    """Name the run of a recipe after it: "base", "table3-big", or a file's name without its suffix."""
    return name_or_path.replace("/", "-") if name_or_path in recipe_names() else Path(name_or_path).stem


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe; a ConfigError says what is wrong, with file, line and value, and what to write instead.

    Args:
        name_or_path: a bundled recipe's name, such as "base", or the path of a YAML file.
        overrides: "section.field=value", each replacing what the file says; a later one wins.
    """
    chain = [_find(name_or_path)]
    try:
        settings = _read_chain(chain)
        for override in overrides:
            setting = _read_override(override)
            settings[setting.key] = setting
        return _build(settings, chain[0])
    except ConfigError as error:
        if len(chain) == 1 or error.problem.startswith("--set"):
            raise
        story = " extends ".join(map(str, chain))
        raise ConfigError(f"{error.problem} ({story})", error.hint, key=error.key) from None


def _read_chain(chain: list[Path]) -> _Settings:
    """Read a recipe and all that it extends, appending those to `chain`; the nearer one's settings win."""
    settings: _Settings = {}
    while True:
        settings = _read_file(chain[-1]) | settings
        extends = settings.pop(_EXTENDS, None)
        if extends is None:
            return settings
        base = _find_base(extends, chain[-1])
        if base.resolve() in [path.resolve() for path in chain]:
            problem = f"{extends.place}: extends is {extends.text}, which comes back to {base}"
            raise ConfigError(problem, "let the last of them extend nothing", key=_EXTENDS)
        chain.append(base)


def _find_base(extends: Setting, path: Path) -> Path:
    name = extends.text
    if name in _NULL:
        raise ConfigError(f"{extends.place}: extends has no value", f"name one of {', '.join(recipe_names()[:3])}...")
    if name not in recipe_names() and not Path(name).is_absolute():
        name = str(path.parent / name)
    try:
        return _find(name)
    except ConfigError as error:
        problem = f"{extends.place}: extends is {extends.text}, but {error.problem}"
        raise ConfigError(problem, did_you_mean(extends.text, recipe_names()), key=_EXTENDS) from None


def _build(settings: _Settings, path: Path) -> Recipe:
    values: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}
    for setting in settings.values():
        section, _, field = setting.key.partition(".")
        if field:
            values[section][field] = _convert(setting)
    sections = {}
    for name, section_class in _SECTIONS.items():
        try:
            sections[name] = section_class(**values[name])
        except ConfigError as error:
            blamed = settings.get(error.key) or settings.get(name)
            place = blamed.place if blamed else path
            raise ConfigError(f"{place}: {error.problem}", error.hint, key=error.key) from None
    return Recipe(**sections)


def read_overrides(section: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Read "section.field=value" settings of one section, by the names of their fields; a later one wins."""
    values = {}
    for override in overrides:
        setting = _read_override(override)
        name, _, key = setting.key.partition(".")
        if name != section:
            raise ConfigError(f"--set {override}: {setting.key} is not a setting of {section}", f"set {section}.NAME")
        values[key] = _convert(setting)
    return values


def recipe_to_yaml(recipe: Recipe) -> str:
    """Write every setting of a recipe as YAML that `load_recipe` reads back to an equal recipe."""
    return str(yaml.safe_dump(asdict(recipe), sort_keys=False, allow_unicode=True, width=math.inf))


def _bundled_folder() -> Path:
    """Find the recipes: inside the installed package, or next to it in a checkout."""
    inside = Path(__file__).parent / "recipes"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "recipes"


def _find(name_or_path: str) -> Path:
    names = recipe_names()
    if name_or_path in names:
        return _bundled_folder() / f"{name_or_path}.yaml"
    path = Path(name_or_path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, but a recipe is a file", "name the .yaml file in it")
    if not path.is_file():
        is_name = not path.suffix and (len(path.parts) == 1 or any(n.startswith(f"{path.parts[0]}/") for n in names))
        problem = f"there is no recipe {name_or_path}" if is_name else f"recipe file {path} does not exist"
        raise ConfigError(problem, did_you_mean(name_or_path if is_name else path.stem, names))
    return path


def _read_override(override: str) -> Setting:
    key, equals, text = (part.strip() for part in override.partition("="))
    if not equals:
        raise ConfigError(f"--set {override}: no value", "write --set section.name=value")
    if key in _REMOVED:
        raise ConfigError(f"--set {override}: {key} is gone: {_REMOVED[key]}", "remove the setting")
    if key not in _KEYS:
        section, _, name = key.rpartition(".")
        known_name = any(known.endswith(f".{name}") for known in _KEYS)
        hint = _suggest_name(name, section) if known_name or section in _FIELDS else did_you_mean(key, _KEYS)
        raise ConfigError(f"--set {override}: unknown setting {key}", hint)
    return Setting(key, text, f"--set {override}")


def _convert(setting: Setting) -> object:
    """Turn a value's text into what its field holds."""
    section, name = setting.key.split(".")
    field = _FIELDS[section][name]
    if setting.text in _NULL and not setting.quoted:
        default = yaml.safe_dump(field.default).partition("\n")[0]
        raise _complain(setting, "has no value", f"write one, or remove the setting to keep the default ({default})")
    if get_origin(field.type) is Literal:
        allowed = get_args(field.type)
        if setting.text not in allowed:
            raise _complain(setting, f"must be one of {', '.join(allowed)}", did_you_mean(setting.text, allowed))
        return setting.text
    if field.type is str:
        return setting.text
    text, needed = setting.text, f"must be {_NEEDS[field.type]}"
    if setting.quoted:
        raise _complain(setting, f"{needed}, not text", "write it without quotes")
    if field.type is bool:
        if text in ("true", "false"):
            return text == "true"
        meant = _BOOLS.get(text.lower())
        raise _complain(setting, needed, f"write {meant}" if meant else "write one of the two")
    number = _number_meant(text)
    if field.type is float:
        if _NUMBER.fullmatch(text) and math.isfinite(float(text)):
            return float(text)
        hint = f"write {number:g}" if number is not None else "write it with a point, such as 0.1 or 5e-4"
        raise _complain(setting, needed, hint)
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if text.isascii() and text.isdecimal() and len(text) > 20:
        raise _complain(setting, "must have 20 digits at most", "write a smaller number")
    is_whole = number is not None and number.is_integer() and abs(number) < 1e15
    raise _complain(setting, needed, f"write {number:.0f}" if is_whole else "write digits only, such as 1000")


def _number_meant(text: str) -> float | None:
    """Guess the number behind 1e5, 1,000, 010 or 10%, for a hint only."""
    percent = text.endswith("%")
    text = text.removesuffix("%").strip()
    if re.fullmatch(r"[-+]?[0-9]{1,3}(,[0-9]{3})+", text):
        text = text.replace(",", "")
    text = text.replace(",", ".")
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return None
    return float(text) / 100 if percent else float(text)


def _complain(setting: Setting, problem: str, hint: str) -> ConfigError:
    text = setting.text if setting.text.isprintable() and len(setting.text) <= 60 else f"{setting.text[:60]!r}"
    what = f"{setting.key} {problem}" if problem.startswith("has") else f"{setting.key} is {text}, but {problem}"
    return ConfigError(f"{setting.place}: {what}", hint, key=setting.key)


# ---- the YAML of a recipe file, read from the parser's events so that it guesses nothing


def _read_file(path: Path) -> _Settings:
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
        return _read_sections(yaml.parse(text, Loader=yaml.SafeLoader), path)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        is_tab = "\\t" in str(error.problem)
        hint = "indent with blanks, not with tabs" if is_tab else "write `section:`, then `  key: value`"
        raise ConfigError(f"{place}: not YAML: {error.problem}", hint) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"{path}:{line}: the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        raise ConfigError(problem, "remove it") from error


def _read_sections(events: Iterator[Any], path: Path) -> _Settings:
    """Walk through the parser's events: a mapping of sections, each a mapping of settings."""
    settings: _Settings = {}
    start = next((event for event in events if isinstance(event, yaml.NodeEvent)), None)
    if start is None or (isinstance(start, yaml.ScalarEvent) and start.value == ""):
        raise ConfigError(f"{path}: the recipe is empty", f"start with a section: {', '.join(_SECTIONS)}")
    _expect(yaml.MappingStartEvent, start, path, "a recipe")
    for section, place in _read_keys(events, path, ""):
        event = next(events)
        if section == _EXTENDS:
            _expect(yaml.ScalarEvent, event, path, section)
            settings[section] = Setting(section, event.value, place)
            continue
        settings[section] = Setting(section, "", place)
        _expect(yaml.MappingStartEvent, event, path, f"section {section}")
        for key, _ in _read_keys(events, path, section):
            event = next(events)
            _expect(yaml.ScalarEvent, event, path, key)
            if key not in _REMOVED:
                settings[key] = Setting(key, event.value, _place(path, event), quoted=event.style is not None)
            elif event.value.strip("0.") != "":
                raise ConfigError(f"{_place(path, event)}: {key} is gone: {_REMOVED[key]}", "remove the setting")
    for event in events:  # to the end, so that a fault after the last section is found too
        if isinstance(event, yaml.DocumentStartEvent):
            raise ConfigError(f"{_place(path, event)}: a second YAML document begins", "keep one recipe in one file")
    return settings


def _read_keys(events: Iterator[Any], path: Path, section: str) -> Iterator[tuple[str, str]]:
    """Yield each key of a mapping with its place; the caller consumes the value's events before the next key."""
    names = _FIELDS[section] if section else (*_SECTIONS, _EXTENDS)
    seen: dict[str, str] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        place = _place(path, event)
        _expect(yaml.ScalarEvent, event, path, "a key")
        key = f"{section}.{event.value}" if section else event.value
        if event.value not in names and key not in _REMOVED:
            what = "setting" if section else "section"
            raise ConfigError(f"{place}: unknown {what} {key}", _suggest_name(event.value, section))
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
    if isinstance(event, yaml.ScalarEvent) and event.value in _NULL:
        raise ConfigError(f"{place}: {what} is empty", "remove it, or indent its settings below it")
    inside = "sections" if what == "a recipe" else "settings"
    raise ConfigError(f"{problem}, but must hold {inside}", f"write `name:`, and the {inside} below it, indented")


def _place(path: Path, event: Any) -> str:
    return f"{path}:{event.start_mark.line + 1}"


def _suggest_name(name: str, section: str) -> str:
    """Write the hint for an unknown setting in `section`, or an unknown section if that is empty."""
    elsewhere = [f"{other}.{name}" for other, names in _FIELDS.items() if name in names]
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere)}?"
    return did_you_mean(name, _FIELDS[section] if section else (*_SECTIONS, _EXTENDS))
