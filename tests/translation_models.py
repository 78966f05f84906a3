"""Checkpoints of small models with random weights, and what `aiayn translate` says with them."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from commands import Said

from aiayn_cli.checkpoint.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from aiayn_cli.device import Device
from aiayn_cli.model.build import build_model
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.prepare.vocab_training import train_vocab
from aiayn_cli.recipe_keys import DecodingConfig, ModelConfig, TextConfig
from aiayn_cli.text.codec import Codec
from aiayn_cli.text.vocab import Vocab
from aiayn_cli.translate.line_translator import LineTranslator, Translation
from aiayn_cli.translate.options import (
    DecodingOverrides,
    EngineOptions,
    OutputOptions,
    OutputStyle,
    SearchOptions,
    TextOptions,
    TranslateOptions,
    options_from,
)

LINES = ["der hund läuft", "", "die katze springt und läuft", " \u3000", "hund", "eine maus sieht die katze"]
DECODING = DecodingConfig(beam_size=3, alpha=0.7, max_extra=5, batch_tokens=60)

GROUPS = (SearchOptions, DecodingOverrides, EngineOptions, TextOptions, OutputOptions)
SHAPE = ModelConfig(n_encoder_layers=1, n_decoder_layers=2, d_model=16, d_ff=24, n_heads=2, d_k=6, d_v=10)

Translate = Callable[..., Said]  # options, and lines=; the fixture `translate`
ModelMaker = Callable[..., TranslationModel]  # seed, then fields of ModelConfig; the fixture `make_model`
TranslatorMaker = Callable[..., LineTranslator]  # models, then fields of DecodingConfig; the fixture `make_translator`


def make_checkpoint(
    path: Path,
    seed: int,
    corpus: str = "der die eine hund katze maus läuft springt sieht und",
    shape: ModelConfig = SHAPE,
) -> Path:
    vocab_file = path.parent / f"{path.name}.vocab"
    vocab_file.write_bytes(train_vocab(Counter(corpus.split(" ")) + Counter("abcdefghijklmnopqrstuvwxyz"), 60))
    vocab = Vocab.load(vocab_file)
    torch.manual_seed(seed)
    model = build_model(shape, vocab.size)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "embedding" not in name:
                weight.mul_(3)  # fresh weights hardly look at the source
    checkpoint = Checkpoint(
        path=path, step=1200 + seed, model=shape, decoding=DECODING, vocab_size=vocab.size, vocab_sha256=vocab.sha256,
        data_sha256="d", src_lang="de", tgt_lang="en", run_id="r",
    )  # fmt: skip
    save_checkpoint(checkpoint, dict(model.named_parameters()), vocab_file)
    return path


def translations(
    paths: list[Path], lines: list[str], decoding: DecodingConfig | None = DECODING, n_best: int = 1
) -> list[list[Translation]]:
    """What the LineTranslator itself says; decoding None = the first model's own."""
    models = []
    decoding = decoding or load_checkpoint(paths[0]).decoding
    for checkpoint in map(load_checkpoint, paths):
        models.append(build_model(checkpoint.model, checkpoint.vocab_size).eval())
        checkpoint.load_into(models[-1])
    vocab = Codec.load(paths[0], TextConfig(), "de", "en")
    cpu = Device(torch.device("cpu"), torch.float32, 1, "")
    return LineTranslator(models, vocab, cpu, decoding, options=SearchOptions(n_best=n_best)).translate_n_best(lines)


def translate_options(models: Sequence[Path] = (), **given: Any) -> TranslateOptions:
    """Options from the fields of all their groups; `format` is that of the output, and of the input by default."""
    given = {"models": tuple(models), **given}
    given["style"] = OutputStyle(**{name: given.pop(name) for name in _names(OutputStyle) & given.keys()})
    given["format"] = given.pop("input_format", given["style"].format)
    assert all(any(name in _names(group) for group in GROUPS) for name in given)
    return options_from(given)


def _names(group: Any) -> set[str]:
    return {field.name for field in fields(group)}


def best(outputs: list[list[Translation]]) -> str:
    return "".join(each[0].text + "\n" for each in outputs)


def start(model: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start `aiayn translate` with pipes to it and from it."""
    command = [sys.executable, "-m", "aiayn_cli", "translate", "-m", str(model), "--device", "cpu", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)


def assert_answers_at_once(process: subprocess.Popen[bytes], blank: bytes = b"\n") -> None:
    """Each line is answered before the next is written, and a blank one so."""
    assert process.stdin is not None
    assert process.stdout is not None
    for line in (b"hund\n", b"\n", b"katze\n"):
        process.stdin.write(line)
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer.endswith(b"\n")
        assert answer.startswith(blank) if line == b"\n" else answer > b"\n"
