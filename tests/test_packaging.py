"""The wheel works outside the checkout, and the constraints pin everything that `make` installs."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from own_text import SMALLER, write_own_text
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the sources, without the network, and return the folder where it is unpacked."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for folder in ("aiayn_cli", "recipes"):
        shutil.copytree(CHECKOUT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / file, source)
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip_wheel, "--wheel-dir", str(built), "."], cwd=source, check=True, timeout=300)
    (path,) = built.glob("aiayn_cli-*-py3-none-any.whl")
    unpacked = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(unpacked)
    return unpacked


def run_from_wheel(wheel: Path, folder: Path, *arguments: str) -> str:
    """Run Python in `folder`, where the unpacked wheel comes before an editable install."""
    env = {**os.environ, "PYTHONPATH": str(wheel)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_every_module_template_and_recipe(wheel: Path) -> None:
    def files(folder: Path, pattern: str) -> set[str]:
        return {str(path.relative_to(folder)) for path in folder.rglob(pattern)}

    assert files(wheel / "aiayn_cli", "*.py") == files(CHECKOUT / "aiayn_cli", "*.py")
    for kind in ("*.html", "*.css", "*.js"):
        assert files(wheel / "aiayn_cli", kind) == files(CHECKOUT / "aiayn_cli", kind) != set()
    assert files(wheel / "aiayn_cli" / "recipes", "*.*") == files(CHECKOUT / "recipes", "*.yaml")
    assert {path.name for path in wheel.iterdir() if path.suffix != ".dist-info"} == {"aiayn_cli"}
    (licence,) = wheel.glob("*.dist-info/licenses/LICENSE")
    assert licence.read_text() == (CHECKOUT / "LICENSE").read_text()
    (entry_points,) = wheel.glob("*.dist-info/entry_points.txt")
    assert "aiayn = aiayn_cli.__main__:main" in entry_points.read_text()


def test_the_wheel_trains_a_bundled_recipe_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    write_own_text(tmp_path)
    aiayn = ["-m", "aiayn_cli"]
    files = ["--train", "train.en", "train.de", "--valid", "valid.en", "valid.de"]
    run_from_wheel(wheel, tmp_path, *aiayn, "prepare", *files, "--langs", "en-de", "--out", "mine")
    settings = [*SMALLER["train"], "--set", "training.max_updates=2"]
    train = ["train", "--recipe", "tiny", "--data", "mine", "--out", "run", *settings]
    run_from_wheel(wheel, tmp_path, *aiayn, *train)
    assert (tmp_path / "run" / "checkpoints" / "step-00000002" / "weights.safetensors").is_file()


# ---- versions


def _pins() -> dict[str, str]:
    lines = (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").split("\n")
    pins: dict[str, str] = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, equals, version = line.partition("==")
            assert equals, f"constraints.txt has no exact version in: {line}"
            pins[canonicalize_name(name)] = version
    return pins


def _declared() -> list[Requirement]:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    return [Requirement(text) for text in [*project["dependencies"], *extras]]


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    pins = _pins()
    for requirement in _declared():
        pinned = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pinned), f"{requirement} does not allow {pinned}"
    assert pins["torch"] == "2.13.0"


def test_what_the_dependencies_need_is_pinned_too() -> None:
    pins = _pins()
    todo, done = _declared(), set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        assert name in pins, f"constraints.txt lacks {name}"
        if name in done:
            continue
        done.add(name)
        try:
            needed = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:  # an optional part that this machine does not have
            continue
        todo += [need for need in needed if need.marker is None or need.marker.evaluate({"extra": ""})]
    assert done == set(pins), "constraints.txt pins what nothing needs"
