"""Times one step of beam search on a CPU, and what it gains from products made for few rows.

    python tests/benchmarks/search_steps.py [--sizes small,base] [--sentences 1 4 16 64] [--threads 1]

A step reads one token of each hypothesis, of a model with random weights: `small` with a vocabulary of 8,000, `base`
with 37,000. The projection to the vocabulary is multiplied as a whole, and in blocks of words as the toolkit does for
up to 512 rows (model/translation_model.py); 8-bit products are oneDNN's alone, and for up to 64 rows FBGEMM's as the
toolkit has them (model/cpu/int8.py). A ratio below 1 says how much of the time is left. Both forms of a pair take
turns, and the fastest of each counts. `search` is the part of a step, in fp32, that is not the model's: choosing
hypotheses.
"""

import argparse
import time
from unittest import mock

import torch
from translate import SIZES

from aiayn_cli.device import choose_device
from aiayn_cli.model import translation_model
from aiayn_cli.model.build import build_model
from aiayn_cli.model.cpu.int8 import Int8Linear, use_int8
from aiayn_cli.model.translation_model import TranslationModel
from aiayn_cli.recipe_keys import ModelConfig
from aiayn_cli.special_tokens import EOS_ID, N_SPECIAL_TOKENS
from aiayn_cli.translate.search.beam import beam_search
from aiayn_cli.translate.search.scorer import ModelScorer

VOCAB = {"small": 8_000, "base": 37_000}
SRC_LEN = 16
STEPS = 12


class TimedScorer(ModelScorer):
    """Knows how long its steps took."""

    seconds = 0.0

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """See ModelScorer."""
        start = time.perf_counter()
        log_probs = super().step(tokens)
        self.seconds += time.perf_counter() - start
        return log_probs


def search(model: TranslationModel, sentences: int) -> tuple[float, float]:
    """Milliseconds of a step, and of what is not the model's in it."""
    src = torch.randint(N_SPECIAL_TOKENS, VOCAB["small"], (sentences, SRC_LEN))
    with torch.inference_mode():
        scorer = TimedScorer([model], src, None)
        start = time.perf_counter()
        beam_search(scorer, [STEPS] * sentences, beam_size=4, alpha=0.0)
        seconds = time.perf_counter() - start
    return seconds / STEPS * 1e3, (seconds - scorer.seconds) / STEPS * 1e3


def whole_projection(model: TranslationModel, sentences: int) -> tuple[float, float]:
    """The same, without blocks of words."""
    with mock.patch.object(translation_model, "_MOST_ROWS", 0):
        return search(model, sentences)


def one_kernel(model: TranslationModel, sentences: int) -> tuple[float, float]:
    """The same, with the 8-bit products for many rows at any number of them."""
    layers = [module for module in model.modules() if isinstance(module, Int8Linear)]
    kept = [layer._few for layer in layers]
    for layer in layers:
        layer._few = layer._many
    try:
        return search(model, sentences)
    finally:
        for layer, few in zip(layers, kept, strict=True):
            layer._few = few


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--sentences", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5, help="turns of each form")
    arguments = parser.parse_args()
    choose_device("cpu")  # sets up matrix products and malloc as every command does
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    print(f"milliseconds of a step, beam 4, {arguments.threads} thread(s), torch {torch.__version__}")
    print("size   sentences  fp32 whole  in blocks  ratio  search  int8 oneDNN  with FBGEMM  ratio")
    for size in arguments.sizes.split(","):
        models = [build_model(ModelConfig(**SIZES[size]), VOCAB[size]).eval() for _ in range(2)]
        for model in models:
            torch.nn.init.zeros_(model.output.weight[EOS_ID].detach())  # no output ends before the last step
        use_int8(models[1])
        for sentences in arguments.sentences:
            forms = [(whole_projection, models[0]), (search, models[0]), (one_kernel, models[1]), (search, models[1])]
            turns = [[form(model, sentences) for form, model in forms] for _ in range(arguments.repeats)]
            whole, blocks, one, few = (min(turn[form][0] for turn in turns) for form in range(len(forms)))
            rest = min(turn[1][1] for turn in turns)
            row = f"{size:5}  {sentences:9}  {whole:10.1f}  {blocks:9.1f}  {blocks / whole:5.2f}  {rest:6.2f}"
            print(f"{row}  {one:11.1f}  {few:11.1f}  {few / one:5.2f}", flush=True)


if __name__ == "__main__":
    main()
