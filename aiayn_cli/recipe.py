"""A recipe file and its overrides become one Recipe: strictly, and with file and line in every complaint.

A recipe is YAML with two levels: the sections and fields of config.py. YAML's own guesses about types are not
used: they read `5e-4` as text, `no` as false and `010` as eight. The field says what its value must be:

* a number is what it looks like (`5e-4`, `37_000`); a whole number has no point and no exponent,
* a switch is `true` or `false`, and nothing else,
* a text is taken as it is written, so `compile: off` is the text "off".

Anchors, tags and nested values have no meaning here and are refused.

`extends: base` at the top level names the recipe whose settings hold where a file says nothing: a bundled recipe, or
a file beside the one that names it. Without it, config.py's defaults hold.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml

from aiayn_cli.config import DataConfig, DecodingConfig, ModelConfig, Recipe, TrainingConfig
from aiayn_cli.errors import ConfigError, did_you_mean
from aiayn_cli.recipe_file import EXTENDS, NULL, Setting, read_recipe_file, suggest_name

_Config = type[DataConfig] | type[ModelConfig] | type[TrainingConfig] | type[DecodingConfig]
_SECTIONS: dict[str, _Config] = {
    "data": DataConfig,
    "model": ModelConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}
_FIELDS = {name: {field.name: field for field in fields(section)} for name, section in _SECTIONS.items()}
_KEYS = [f"{section}.{key}" for section, keys in _FIELDS.items() for key in keys]

_BOOLS = {
    **dict.fromkeys(("true", "yes", "on", "y", "1"), "true"),
    **dict.fromkeys(("false", "no", "off", "n", "0"), "false"),
}  # what people write for a switch, and how it is written here
_NEEDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number"}
_WHOLE_NUMBER = re.compile(r"(?=.{1,20}$)[-+]?(0|[1-9][0-9]*(_[0-9]+)*)")  # 20 characters hold any 64-bit number
_NUMBER = re.compile(r"[-+]?([0-9]+(_[0-9]+)*(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


def recipe_names() -> list[str]:
    """List the recipes that come with the package, by name."""
    folder = _bundled_folder()
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def run_name(name_or_path: str) -> str:
    """Name the run of a recipe after it: "base", "table3-big", or a file's name without its suffix."""
    return name_or_path.replace("/", "-") if name_or_path in recipe_names() else Path(name_or_path).stem


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe.

    Args:
        name_or_path: a bundled recipe's name, such as "base", or the path of a YAML file.
        overrides: "section.field=value", each replacing what the file says; a later one wins.
    Returns:
        The recipe; a field that neither names keeps its default.
    Raises:
        ConfigError: what is wrong, with file, line and value, and what to write instead.
    """
    path = _find(name_or_path)
    chain = [path]
    try:
        settings, section_places = _read_chain(chain)
        for override in overrides:
            setting = _read_override(override)
            settings[setting.key] = setting
        return _build(settings, section_places, path)
    except ConfigError as error:
        if len(chain) == 1 or error.problem.startswith("--set"):
            raise
        story = " extends ".join(map(str, chain))
        raise ConfigError(f"{error.problem} ({story})", error.hint, key=error.key) from None


def _read_chain(chain: list[Path]) -> tuple[dict[str, Setting], dict[str, str]]:
    """Read a recipe and all that it extends, which are added to `chain`; the nearer one's settings win."""
    settings: dict[str, Setting] = {}
    section_places: dict[str, str] = {}
    while True:
        file = read_recipe_file(chain[-1], _FIELDS)
        settings = file.settings | settings
        section_places = file.section_places | section_places
        if file.extends is None:
            return settings, section_places
        base = _find_base(file.extends, chain[-1])
        if base.resolve() in [path.resolve() for path in chain]:
            problem = f"{file.extends.place}: extends is {file.extends.text}, which comes back to {base}"
            raise ConfigError(problem, "let the last of them extend nothing", key=EXTENDS)
        chain.append(base)


def _find_base(extends: Setting, path: Path) -> Path:
    name = extends.text
    if name in NULL:
        raise ConfigError(f"{extends.place}: extends has no value", f"name one of {', '.join(recipe_names()[:3])}...")
    if name not in recipe_names() and not Path(name).is_absolute():
        name = str(path.parent / name)
    try:
        return _find(name)
    except ConfigError as error:
        problem = f"{extends.place}: extends is {extends.text}, but {error.problem}"
        raise ConfigError(problem, did_you_mean(extends.text, recipe_names()), key=EXTENDS) from None


def _build(settings: Mapping[str, Setting], section_places: Mapping[str, str], path: Path) -> Recipe:
    values: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}
    for setting in settings.values():
        name, field = setting.key.split(".")
        values[name][field] = _convert(setting)
    sections: dict[str, Any] = {}
    for name, section in _SECTIONS.items():
        try:
            sections[name] = section(**values[name])
        except ConfigError as error:
            place = settings[error.key].place if error.key in settings else section_places.get(name, str(path))
            raise ConfigError(f"{place}: {error.problem}", error.hint, key=error.key) from None
    return Recipe(**sections)


def recipe_to_yaml(recipe: Recipe) -> str:
    """Write every setting of a recipe as YAML that `load_recipe` reads back to an equal recipe."""
    lines = []
    for name, keys in _FIELDS.items():
        lines.append(f"{name}:")
        section = getattr(recipe, name)
        lines += [f"  {key}: {_write_value(getattr(section, key))}" for key in keys]
    return "\n".join(lines) + "\n"


def _bundled_folder() -> Path:
    """Find the recipes: inside the installed package, or beside it in a checkout."""
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
    if key not in _KEYS:
        section, _, name = key.rpartition(".")
        known_name = any(known.endswith(f".{name}") for known in _KEYS)
        hint = suggest_name(name, section, _FIELDS) if known_name or section in _FIELDS else did_you_mean(key, _KEYS)
        raise ConfigError(f"--set {override}: unknown setting {key}", hint)
    return Setting(key, text, quoted=False, place=f"--set {override}")


def _convert(setting: Setting) -> object:
    """Turn a value's text into what its field holds."""
    section, name = setting.key.split(".")
    field = _FIELDS[section][name]
    if setting.text in NULL and not setting.quoted:
        default = _write_value(field.default)
        raise _complain(setting, "has no value", f"write one, or remove the setting to keep the default ({default})")
    if get_origin(field.type) is Literal:
        allowed = get_args(field.type)
        if setting.text not in allowed:
            raise _complain(setting, f"must be one of {', '.join(allowed)}", did_you_mean(setting.text, allowed))
        return setting.text
    if field.type is str:
        return setting.text
    if setting.quoted:
        raise _complain(setting, f"must be {_NEEDS[field.type]}, not text", "write it without quotes")
    if field.type is bool:
        return _to_bool(setting)
    return _to_int(setting) if field.type is int else _to_float(setting)


def _to_bool(setting: Setting) -> bool:
    if setting.text in ("true", "false"):
        return setting.text == "true"
    meant = _BOOLS.get(setting.text.lower())
    raise _complain(setting, f"must be {_NEEDS[bool]}", f"write {meant}" if meant else "write one of the two")


def _to_int(setting: Setting) -> int:
    if _WHOLE_NUMBER.fullmatch(setting.text):
        return int(setting.text)
    if setting.text.isascii() and setting.text.isdecimal() and len(setting.text) > 20:
        raise _complain(setting, "must have 20 digits at most", "write a smaller number")
    number = _number_meant(setting.text)
    is_whole = number is not None and number.is_integer() and abs(number) < 1e15
    hint = f"write {number:.0f}" if is_whole else "write digits only, such as 1000"
    raise _complain(setting, f"must be {_NEEDS[int]}", hint)


def _to_float(setting: Setting) -> float:
    if _NUMBER.fullmatch(setting.text) and math.isfinite(float(setting.text)):
        return float(setting.text)
    number = _number_meant(setting.text)
    hint = f"write {number:g}" if number is not None else "write it with a point, such as 0.1 or 5e-4"
    raise _complain(setting, f"must be {_NEEDS[float]}", hint)


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


def _write_value(value: object) -> str:
    """Write one value as YAML that every reader takes for the same value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        mantissa, e, exponent = repr(value).partition("e")
        return f"{mantissa}{'' if '.' in mantissa or not e else '.0'}{e}{exponent}"  # 1.0e-09: YAML 1.1 needs the point
    if isinstance(value, str):
        is_plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]*", value) and value.lower() not in (*_BOOLS, *NULL)
        return value if is_plain else yaml.safe_dump(value, default_style='"', width=math.inf).rstrip("\n")
    return str(value)
