"""Recipes: what is wrong is said in one line with file, line, value and the nearest right name."""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn_cli.errors import ConfigError
from aiayn_cli.recipe import load_recipe, recipe_names, recipe_to_yaml, run_name
from aiayn_cli.recipe_keys import MOST_HYPOTHESES, DataConfig, DecodingConfig, ModelConfig, Recipe, TrainingConfig

SECTIONS = {"data": DataConfig, "model": ModelConfig, "training": TrainingConfig, "decoding": DecodingConfig}
FIELDS = [(section, field) for section, config in SECTIONS.items() for field in fields(config)]
FIELD_IDS = [f"{section}.{field.name}" for section, field in FIELDS]
REPO_RECIPES = Path(__file__).parent.parent / "recipes"
Write = Callable[[str, str], Path]


@pytest.fixture
def refuse(tmp_path: Path) -> Any:
    """Load a text as a recipe, check the form of the complaint, and return it."""

    def load(text: str | bytes, *overrides: str) -> ConfigError:
        path = tmp_path / "my.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ConfigError) as caught:
            load_recipe(str(path), overrides)
        error = caught.value
        assert "\n" not in error.problem + error.hint
        assert error.hint
        assert str(path) in error.problem or "--set" in error.problem
        error.problem = error.problem.replace(f"{tmp_path}/", "")
        return error

    return load


@pytest.fixture
def accept(tmp_path: Path) -> Any:
    def load(text: str | bytes, *overrides: str) -> Recipe:
        path = tmp_path / "my.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_recipe(str(path), overrides)

    return load


# ---- names, types and values


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("modle:\n  d_model: 8\n", "my.yaml:1: unknown section modle", "did you mean model?"),
        ("max_updates: 5\n", "my.yaml:1: unknown section max_updates", "did you mean training.max_updates?"),
        ("seed: 5\n", "my.yaml:1: unknown section seed", "did you mean data.seed or training.seed?"),
        ("model:\n  d_ff: 8\n  droput: 0.1\n", "my.yaml:3: unknown setting model.droput", "did you mean dropout?"),
        ("model:\n  beam_size: 8\n", "my.yaml:2: unknown setting model.beam_size", "did you mean decoding.beam_size?"),
        ("decoding:\n  zzz: 8\n", "my.yaml:2: unknown setting decoding.zzz",
         "available: beam_size, alpha, max_extra, batch_tokens, tree_rules"),
        ('data:\n  corpus: ""\n', "my.yaml:2: data.corpus is empty", "name a corpus, such as demo"),
        ("training:\n  average_last: 7\n  seed: 3\n",  # the setting at fault has its default: the section is named
         "my.yaml:1: training.keep_checkpoints is 5, fewer than average_last (7)",
         "set keep_checkpoints to 7 or more, so that averaging finds what it needs"),
        ("training:\n  validation_bleu_pairs: 0\n  best_metric: bleu\n",
         "my.yaml:3: training.best_metric is bleu, but training.validation_bleu_pairs is 0", None),
        ("model:\n  d_model: 13\n", "my.yaml:2: model.d_model is 13, but sinusoidal positions need an even width",
         "use 14, or positions: learned"),
        # What is not two levels of YAML:
        ("", "my.yaml: the recipe is empty", "start with a section: data, model, training, decoding"),
        ("model\n", "my.yaml:1: a recipe is a single value, but must hold sections",
         "write `name:`, and the sections below it, indented"),
        ("data:\n  seed: 3\nmodel:\n  - d_ff\n", "my.yaml:4: section model is a list, but must hold settings",
         "write `name:`, and the settings below it, indented"),
        ("model:\n", "my.yaml:1: section model is empty", "remove it, or indent its settings below it"),
        (f"model: {'{d_ff: ' * 5000}", "my.yaml:1: model.d_ff is a mapping, but must be a single value",
         "write `name: value`"),
        ("? [a]\n: 3\n", "my.yaml:1: a key is a list, but must be a single value", "write `name: value`"),
        ("model:\n  d_ff: 4\n  n_heads: 2\n  d_ff: 8\n", "my.yaml:4: model.d_ff was already given at my.yaml:2",
         "keep one of the two"),
        ("model: &m\n  d_ff: 4\n", "my.yaml:1: section model has an anchor or alias (m)", "write the value itself"),
        ("model: !!python/object:os.system\n  d_ff: 4\n",
         "my.yaml:1: section model has a tag (tag:yaml.org,2002:python/object:os.system)",
         "remove it; the setting decides the type"),
        ("model:\n  <<: 3\n", "my.yaml:2: unknown setting model.<<", None),
        ("data:\n  seed: 2\n---\ndata:\n  seed: 3\n", "my.yaml:3: a second YAML document begins",
         "keep one recipe in one file"),
        ("model:\n\td_ff: 4\n", "my.yaml:2: not YAML: found character '\\t' that cannot start any token",
         "indent with blanks, not with tabs"),
        ("model:\n  d_ff: 4\n n_heads: 2\n",
         "my.yaml:3: not YAML: expected <block end>, but found '<block mapping start>'",
         "write `section:`, then `  key: value`"),
        ("model:\n  d_ff: 4\x00\n", "my.yaml:2: the character U+0000 is not allowed in YAML", "remove it"),
        (b"model:\n  d_ff: 4 # gr\xf6\xdfer\n", "my.yaml:2: byte 21 (0xF6) is not UTF-8",
         "save the recipe as UTF-8 text"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_in_one_line(refuse: Any, text: str | bytes, problem: str, hint: str | None) -> None:
    error = refuse(text)
    assert error.problem == problem
    assert hint is None or error.hint == hint


WHOLE, NUMBER, SWITCH = "must be a whole number", "must be a number", "must be true or false"


@pytest.mark.parametrize(
    ("key", "value", "problem", "hint"),
    [
        ("training.max_updates", "1e5", WHOLE, "write 100000"),
        ("training.batch_tokens", "25,000", WHOLE, "write 25000"),
        ("training.batch_tokens", "010", WHOLE, "write 10"),
        ("training.batch_tokens", "1:30", WHOLE, "write digits only, such as 1000"),  # YAML 1.1 reads 90
        ("training.max_updates", "'100'", f"{WHOLE}, not text", "write it without quotes"),
        ("model.dropout", "10%", NUMBER, "write 0.1"),
        ("model.dropout", "0,3", NUMBER, "write 0.3"),
        ("training.clip_norm", "1e999", NUMBER, "write it with a point, such as 0.1 or 5e-4"),
        ("model.dropout", "1.0", "must be in [0, 1)", "the paper uses 0.1 (base) and 0.3 (big)"),
        ("data.dedupe", "no", SWITCH, "write false"),
        ("data.dedupe", "0", SWITCH, "write false"),
        ("data.dedupe", "maybe", SWITCH, "write one of the two"),
        ("data.dedupe", "'true'", f"{SWITCH}, not text", "write it without quotes"),
        ("training.compile", "false", "must be one of auto, on, off, graphs", "available: auto, on, off, graphs"),
        ("model.norm", "pree", "must be one of post, pre", "did you mean pre?"),
        ("training.batch_tokens", "9" * 5000, "must have 20 digits at most", "write a smaller number"),
        ("model.n_heads", "", None, "write one, or remove the setting to keep the default (8)"),
        ("training.adam_eps", "null", None, "write one, or remove the setting to keep the default (1.0e-09)"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(
    refuse: Any, key: str, value: str, problem: str | None, hint: str
) -> None:
    section, _, name = key.partition(".")
    error = refuse(f"{section}:\n\n  {name}: {value}\n")
    shown = value.strip("'") if len(value) < 60 else f"'{value[:60]}'"
    what = f"is {shown}, but {problem}" if problem else "has no value"
    assert (error.problem, error.hint) == (f"my.yaml:3: {key} {what}", hint)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("training.learning_rate_scale", "5e-4", 0.0005),  # text in YAML 1.1
        ("training.learning_rate_scale", ".5", 0.5),
        ("training.learning_rate_scale", "2", 2.0),
        ("training.batch_tokens", "25_000", 25_000),
        ("training.batch_tokens", "+7", 7),
        ("training.compile", "off", "off"),  # false in YAML 1.1
        ("training.compile", "'on'", "on"),
        ("data.corpus", "2014-01-01", "2014-01-01"),  # a date in YAML 1.1
        ("data.corpus", "'null'", "null"),
        ("data.corpus", "übung", "übung"),
        ("data.dedupe", "false", False),
    ],
)
def test_a_value_means_what_it_looks_like(accept: Any, key: str, value: str, expected: object) -> None:
    section, _, name = key.partition(".")
    for text in (
        f"{section}:\n  {name}: {value}\n",
        f"{{{section}: {{{name}: {value}}}}}",
        f"\ufeff{section}:\r\n  {name}: {value}",
    ):
        found = getattr(getattr(accept(text), section), name)
        assert found == expected
        assert type(found) is type(expected)


@given(st.text(alphabet="model:d_f 4\n\t-[]{}&*!|>'\"%@`#,?~<.é\x85\u2028\x00", max_size=30))
def test_any_text_is_a_recipe_or_a_config_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "any.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        outcome: Recipe | ConfigError = load_recipe(str(path))
    except ConfigError as error:
        outcome = error
    assert isinstance(outcome, Recipe) or (outcome.hint and "\n" not in outcome.problem)


# ---- every field


def _wrong_values(field: Any) -> list[str]:
    if get_origin(field.type) is Literal:
        return ["nonsense"]
    if field.type is str:
        return ['""', "null", "[a]"]
    wrong = {
        bool: ["no", "1", "yes please"],
        int: ["-1", "1.5", "many", "true"],
        float: ["-0.5", "high", "true", ".nan"],
    }
    return wrong[field.type]


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [(section, field.name, value) for section, field in FIELDS for value in _wrong_values(field)],
)
def test_every_setting_refuses_what_it_cannot_be(refuse: Any, section: str, name: str, value: str) -> None:
    error = refuse(f"# one\n{section}:\n  {name}: {value}\n")
    assert error.problem.startswith(f"my.yaml:3: {section}.{name} ")
    written = value.strip('"')
    if written not in ("", "null", "[a]"):
        assert f" is {written}" in error.problem.replace("'", "")


# ---- overrides


@pytest.mark.parametrize("setting", ["norm=pre", "attention_window=8", "attention_bias=true"])
@pytest.mark.parametrize("kind", ["recurrent", "convolutional"])
def test_what_only_a_transformer_has_is_not_silently_left_out_of_another_model(kind: str, setting: str) -> None:
    name = setting.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"model\.{name} is .*, but a {kind} model has no such thing"):
        load_recipe("base", [f"model.kind={kind}", f"model.{setting}"])
    load_recipe("base", [f"model.kind={kind}"])


def test_an_override_replaces_what_the_file_says_and_the_last_one_wins(accept: Any) -> None:
    text = "training:\n  max_updates: 7\n  seed: 3\n"
    recipe = accept(text, "training.max_updates=11", "model.dropout = 5e-2", "training.max_updates=13")
    assert recipe.training.max_updates == 13
    assert recipe.training.seed == 3
    assert recipe.model.dropout == 0.05
    assert accept(text, "training.compile=off", "data.corpus=a=b").data.corpus == "a=b"


@pytest.mark.parametrize(
    ("override", "problem", "hint"),
    [
        ("training.max_updates", "no value", "write --set section.name=value"),
        ("training.max_update=5", "unknown setting training.max_update", "did you mean max_updates?"),
        ("max_updates=5", "unknown setting max_updates", "did you mean training.max_updates?"),
        ("max_update=5", "unknown setting max_update", "did you mean training.max_updates?"),
        ("trainin.seed=5", "unknown setting trainin.seed", "did you mean data.seed or training.seed?"),
        ("modle.n_head=5", "unknown setting modle.n_head", "did you mean model.n_heads?"),
        ("training.max_updates=1e3", "training.max_updates is 1e3, but must be a whole number", "write 1000"),
        ("training.max_updates=", "training.max_updates has no value",
         "write one, or remove the setting to keep the default (100000)"),
        ("model.dropout=7", "model.dropout is 7.0, but must be in [0, 1)", "the paper uses 0.1 (base) and 0.3 (big)"),
    ],
)  # fmt: skip
def test_a_wrong_override_is_refused_in_one_line(refuse: Any, override: str, problem: str, hint: str) -> None:
    error = refuse("data:\n  seed: 2\n", override)
    assert (error.problem, error.hint) == (f"--set {override}: {problem}", hint)


# ---- files and names


def test_an_unknown_recipe_is_answered_with_the_nearest_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, problem in (
        ("bsae", "there is no recipe bsae"),
        ("my/bsae.yaml", "recipe file my/bsae.yaml does not exist"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_recipe(name)
        assert (caught.value.problem, caught.value.hint) == (problem, "did you mean base?")
    with pytest.raises(ConfigError, match="is a folder"):
        load_recipe(str(tmp_path))


def test_a_path_works_from_any_folder_and_a_name_beats_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("base").write_text("data:\n  seed: 5\n")
    Path("mine").write_text("data:\n  seed: 6\n")
    assert load_recipe("base").data.seed == 1
    assert load_recipe("./base").data.seed == 5
    assert load_recipe("mine").data.seed == 6


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "locked.yaml"
    path.write_text("data:\n  seed: 5\n")

    def refuse_to_read(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse_to_read)  # chmod does not stop root
    with pytest.raises(ConfigError) as caught:
        load_recipe(str(path))
    assert caught.value.problem == f"{path} cannot be read: Permission denied"


# ---- writing


def _configs(config: Any) -> Any:
    number = st.floats(min_value=1e-30, max_value=0.999, allow_nan=False)
    by_type: dict[Any, Any] = {
        int: st.integers(10, 10**12).map(lambda n: n * 2),
        float: number,
        bool: st.booleans(),
        str: st.text(min_size=1),
    }
    values = {
        field.name: st.sampled_from(get_args(field.type)) if get_origin(field.type) is Literal else by_type[field.type]
        for field in fields(config)
    }
    if config is DataConfig:
        values |= {"max_ratio": st.floats(1, 1e30), "corpus": st.text(min_size=1).filter(str.strip)}
        values |= {"vocab_size": st.integers(300, 10**6), "normaliser": st.integers(0, 1)}
        values |= {"trees": st.just(False)}  # what fits all that is done to text
    if config is ModelConfig:
        values |= {"kind": st.just("transformer")}  # which has all settings
    if config is TrainingConfig:
        values |= {"average_last": st.integers(1, 9)}
    if config is DecodingConfig:
        values |= {"beam_size": st.integers(1, MOST_HYPOTHESES)}
    if "seed" in values:
        values |= {"seed": st.integers(0, 2**32 - 1)}  # what the random generators take
    return st.builds(config, **values)


@settings(max_examples=30)
@given(st.builds(Recipe, **{name: _configs(config) for name, config in SECTIONS.items()}))
def test_a_written_recipe_reads_back_equal_and_names_every_setting(
    tmp_path_factory: pytest.TempPathFactory, recipe: Recipe
) -> None:
    text = recipe_to_yaml(recipe)
    path = tmp_path_factory.mktemp("written") / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_recipe(str(path)) == recipe
    # An independent reader, with YAML 1.1's own rules, takes it for the same values.
    plain = yaml.safe_load(text)
    for section, config in SECTIONS.items():
        assert plain[section] == {field.name: getattr(getattr(recipe, section), field.name) for field in fields(config)}
        for field in fields(config):
            assert type(plain[section][field.name]) is type(getattr(getattr(recipe, section), field.name))


# ---- the recipes that come with the package


def test_the_bundled_recipes_are_the_files_of_the_recipes_folder() -> None:
    found = (path.relative_to(REPO_RECIPES).with_suffix("") for path in REPO_RECIPES.rglob("*.yaml"))
    assert recipe_names() == sorted(path.as_posix() for path in found)
    assert {"base", "big", "small", "tiny"} <= set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_each_bundled_recipe_is_valid_and_explains_each_number(name: str) -> None:
    load_recipe(name)
    lines = (REPO_RECIPES / f"{name}.yaml").read_text(encoding="utf-8").split("\n")
    numbers = [line for line in lines if line.startswith("  ") and any(c.isdigit() for c in line.split("#")[0])]
    for line in numbers:
        if not line.strip().startswith("corpus:"):
            assert "  # " in line, f"{name}.yaml does not explain: {line.strip()}"


def test_base_is_the_default_and_spells_out_every_setting() -> None:
    written = yaml.safe_load((REPO_RECIPES / "base.yaml").read_text(encoding="utf-8"))
    assert {f"{section}.{key}" for section, keys in written.items() for key in keys} == set(FIELD_IDS)
    assert load_recipe("base") == Recipe()


def test_big_is_the_paper_s_big_model() -> None:
    base, big = load_recipe("base"), load_recipe("big")
    model = big.model
    assert (model.n_encoder_layers, model.n_decoder_layers, model.d_model, model.d_ff) == (6, 6, 1024, 4096)  # Table 3
    assert (model.n_heads, model.d_k, model.d_v, model.dropout) == (16, 64, 64, 0.3)
    assert (big.training.max_updates, big.training.average_last, big.training.keep_checkpoints) == (300_000, 20, 20)
    assert math.isclose(big.training.save_every_steps * 1.0, 10 * 60)  # 10 minutes at 1.0 s an update (Section 5.2)
    assert (big.data, big.decoding) == (base.data, base.decoding)
    written = yaml.safe_load((REPO_RECIPES / "big.yaml").read_text(encoding="utf-8"))
    assert {f"{section}.{key}" for section, keys in written.items() for key in keys} == set(FIELD_IDS)


def test_a_setting_that_is_gone_is_passed_over_where_it_changed_nothing(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text("data:\n  bpe_dropout: 0.0\n  vocab_size: 500\n", encoding="utf-8")
    assert load_recipe(str(path)).data == DataConfig(vocab_size=500)
    path.write_text("data:\n  bpe_dropout: 0.1\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_recipe(str(path))
    assert caught.value.problem == f"{path}:2: data.bpe_dropout is gone: prepare no longer splits words at random"
    assert caught.value.hint == "remove the setting"
    with pytest.raises(
        ConfigError, match=r"--set data\.bpe_dropout=0\.1: data\.bpe_dropout is gone: prepare no longer"
    ):
        load_recipe("base", ["data.bpe_dropout=0.1"])


# ---- `extends`: a recipe says only how it differs from another one, and every complaint names both


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_what_is_not_named_comes_from_the_extended_recipe(write: Write) -> None:
    big = load_recipe("big")
    path = write("mine.yaml", "extends: big\nmodel:\n  dropout: 0.2\n")
    assert load_recipe(str(path)) == replace(big, model=replace(big.model, dropout=0.2))
    assert load_recipe(str(path), ["model.dropout=0.4"]).model.dropout == 0.4


def test_the_key_may_stand_anywhere_and_alone(write: Write) -> None:
    assert load_recipe(str(write("alone.yaml", "extends: big\n"))) == load_recipe("big")
    path = write("last.yaml", "model:\n  n_heads: 4\nextends: base\n")
    assert load_recipe(str(path)) == Recipe(model=ModelConfig(n_heads=4))


def test_files_extend_files_beside_them_through_any_number_of_steps(write: Write) -> None:
    write("a.yaml", "extends: big\nmodel:\n  n_heads: 2\n  d_ff: 8\n")
    write("sub/b.yaml", "extends: ../a.yaml\nmodel:\n  d_ff: 16\n")
    recipe = load_recipe(str(write("sub/c.yaml", "extends: b.yaml\nmodel:\n  dropout: 0.0\n")))
    assert (recipe.model.n_heads, recipe.model.d_ff, recipe.model.dropout, recipe.model.d_model) == (2, 16, 0.0, 1024)


EXTENDS = r" \({path} extends {first}\)$"


@pytest.mark.parametrize(
    ("texts", "problem", "hint"),
    [
        (["extends: bas\n"], "{path}:1: extends is bas, but recipe file .*bas does not exist", "did you mean base?"),
        (["extends:\n"], "{path}:1: extends has no value", "name one of"),
        (["extends: [base, big]\n"], "{path}:1: extends is a list, but must be a single value", "write"),
        (["extends: 0.yaml\n"], "{path}:1: extends is 0.yaml, which comes back to {path}", "extend nothing"),
        (["extends: 1.yaml\n", "extends: 0.yaml\n"], "{first}:1: .*, which comes back to {path}" + EXTENDS, ""),
        (["extends: base\nextends: big\n"], "{path}:2: extends was already given at {path}:1", "keep one"),
        (["extend: base\n"], "{path}:1: unknown section extend", "did you mean extends?"),
        # A complaint names both files:
        (["extends: base\nmodel:\n  dropout: 2\n"], r"{path}:3: model.dropout is 2.0.* \({path} extends .*base.yaml\)$",
         "the paper uses 0.1"),
        (["model:\n  n_heds: 2\n", "extends: 0.yaml\n"], "{first}:2: unknown setting model.n_heds" + EXTENDS,
         "did you mean n_heads?"),
        (["training:\n  keep_checkpoints: 6\n", "extends: 0.yaml\ntraining:\n  average_last: 7\n"],
         r"{first}:2: training.keep_checkpoints is 6, fewer than average_last \(7\)" + EXTENDS, "set keep_checkpoints"),
    ],
)  # fmt: skip
def test_what_cannot_be_extended_is_refused(write: Write, texts: list[str], problem: str, hint: str) -> None:
    paths = [write(f"{number}.yaml", text) for number, text in enumerate(texts)]
    with pytest.raises(ConfigError, match="^" + problem.format(path=paths[-1], first=paths[0])) as caught:
        load_recipe(str(paths[-1]))
    assert hint in caught.value.hint


def test_a_wrong_override_of_a_recipe_that_extends_names_no_file(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"^--set model.dropot=1: unknown setting model.dropot$"):
        load_recipe(str(write("b.yaml", "extends: base\n")), ["model.dropot=1"])


def test_a_run_is_named_after_its_recipe() -> None:
    assert run_name("table3/big") == "table3-big"
    assert run_name("base") == "base"
    assert run_name("my/own.yaml") == "own"


def test_an_unknown_recipe_of_a_folder_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="there is no recipe table3/c-layer-2") as caught:
        load_recipe("table3/c-layer-2")
    assert caught.value.hint == "did you mean table3/c-layers-2?"
