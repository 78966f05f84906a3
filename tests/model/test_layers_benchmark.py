"""The measurement of the paper's Table 1 measures what it says."""

import importlib.util
import xml.etree.ElementTree
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "layers.py"


@pytest.fixture(scope="module")
def layers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("layers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_exponent_of_a_power_is_found(layers: ModuleType) -> None:
    lengths = [32, 64, 128, 256]
    assert layers.exponent(lengths, [0.3 * n**1.7 for n in lengths]) == pytest.approx(1.7)


def test_memory_is_that_of_the_tensors_alive_at_once(layers: ModuleType) -> None:
    x = torch.zeros(1_000)
    with layers.AliveTensors() as alive:
        y = x + 1
        z = y.view(10, 100) * 2  # a view is no new memory
        del y, z
        x + 1
        x.add_(1)
    assert alive.peak == 2 * 4_000
    assert alive.now == 0


def test_memory_of_restricted_attention_grows_with_the_length_alone(layers: ModuleType) -> None:
    kind = layers.kinds(reach=16, kernel=3)[1]
    memory = [layers.measure(kind.make(16), torch.randn(1, n, 16), False)[1] for n in (512, 2048)]
    assert memory[1] / memory[0] == pytest.approx(4, rel=0.02)


def test_every_layer_is_in_the_tables_and_the_picture(
    layers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(layers, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(layers, "WIDTHS", (16, 32))
    picture = tmp_path / "layers.svg"
    assert layers.main(["--longest", "128", "--width", "16", "--reach", "16", "--svg", str(picture)]) == 0
    out = capsys.readouterr().out
    names = [kind.name for kind in layers.kinds(16, 3)]
    assert all(out.count(f"\n{name} ") == 3 for name in names)
    drawn = xml.etree.ElementTree.parse(picture).getroot()
    assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == len(names)
