"""What bf16 and 8-bit weights cost in quality: BLEU beside fp32 with paired tests, and log-probabilities.

    python tests/benchmarks/precision.py --model runs/multi30k --text test test.en test.de [--text valid val.en val.de]

For each text: BLEU; outputs that differ from those of fp32; the score of the outputs as the model in fp32 sees it, the
best of which the search looks for; and log p of a token of the references. The last is measured over thousands of
tokens without a search in between, so that it shows rounding where differences of BLEU are those of chance. At the end
all texts together, with the difference of BLEU to fp32 and its p-values: paired bootstrap, and approximate
randomisation.
"""

import argparse
import math
from pathlib import Path

from translate import read

from aiayn_cli import logs
from aiayn_cli.score.metrics import MetricOptions, SacreMetric
from aiayn_cli.score.significance import compare
from aiayn_cli.translate.forced_decoding import ForcedDecoder
from aiayn_cli.translate.line_translator import LineTranslator, Translation
from aiayn_cli.translate.load_models import LoadedModels, load_models
from aiayn_cli.translate.options import EngineOptions, TranslateOptions
from aiayn_cli.translate.search.beam import length_penalty

KINDS = {"fp32": ("fp32", False), "bf16": ("bf16", False), "int8": ("auto", True)}  # precision, 8-bit weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("runs/multi30k"), help="a trained checkpoint or run")
    parser.add_argument(
        "--text", nargs=3, action="append", required=True, metavar=("NAME", "SOURCE", "REFERENCE"), dest="texts"
    )
    parser.add_argument("--lines", type=int, help="the first of each text; default: all")
    arguments = parser.parse_args()
    logs.setup(logs.QUIET)
    loaded = {kind: load(arguments.model, kind) for kind in KINDS}
    outputs: dict[str, list[str]] = {kind: [] for kind in KINDS}
    references: list[str] = []
    print(f"{'':24}{'lines':>7}{'BLEU':>7}{'changed':>9}{'score in fp32':>15}{'log p, references':>19}")
    for name, source, reference in arguments.texts:
        lines, wanted = read(source)[: arguments.lines], read(reference)[: arguments.lines]
        references += wanted
        exact: list[str] = []
        for kind, models in loaded.items():
            found = [each[0] for each in models.translator.translate_n_best(lines)]
            texts = [translation.text for translation in found]
            exact = exact or texts
            outputs[kind] += texts
            metric = SacreMetric("bleu", [wanted], MetricOptions())
            score = metric.score(metric.statistics([texts])[0]).score
            changed = sum(a != b for a, b in zip(texts, exact, strict=True))
            print(
                f"{name + ', ' + kind:24}{len(lines):7,}{score:7.2f}{changed:9,}"
                f"{mean_score(loaded['fp32'].translator, found):15.5f}{token_log_prob(models, lines, wanted):19.5f}",
                flush=True,
            )
    metric = SacreMetric("bleu", [references], MetricOptions())
    statistics = metric.statistics(list(outputs.values()))
    print(f"\nall {len(references):,} lines: fp32 {metric.score(statistics[0]).score:.2f}")
    for result in compare(metric, list(KINDS), statistics):
        print(
            f"{result.system}: {result.difference:+.2f} BLEU, p = {result.p_bootstrap:.2f} (paired bootstrap), "
            f"{result.p_randomisation:.2f} (approximate randomisation)"
        )


def load(model: Path, kind: str) -> LoadedModels:
    """The model in one precision."""
    precision, int8 = KINDS[kind]
    engine = EngineOptions(models=(model,), device="cpu", precision=precision, int8=int8)  # type: ignore[arg-type]
    return load_models(TranslateOptions(engine=engine))


def mean_score(judge: LineTranslator, translations: list[Translation]) -> float:
    """What another translator thinks of outputs: the mean of their scores, as beam search ranks them."""
    parts = [part for translation in translations for part in translation.parts]
    forced = ForcedDecoder(judge).force([(part.src, part.tgt) for part in parts])
    scores = [each.log_prob / length_penalty(len(each.token_log_probs), judge.decoding.alpha) for each in forced]
    return sum(scores) / len(scores)


def token_log_prob(models: LoadedModels, lines: list[str], references: list[str]) -> float:
    """Natural log p of a token of the references, the end tokens included, on average."""
    pairs = list(zip(models.codec.encode(lines), models.codec.encode_tgt(references), strict=True))
    found = [p for forced in ForcedDecoder(models.translator).force(pairs) for p in forced.token_log_probs]
    return math.fsum(found) / len(found)


if __name__ == "__main__":
    main()
