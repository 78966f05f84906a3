"""How much of training's batches is padding, and how many shapes they have: packed for a CPU, padded for a GPU.

    python tests/benchmarks/padding.py [--data prepared/multi30k ...] [--pairs 1000000]

Nothing is trained. Prepared data is divided as the recipe `small` does it; made-up pairs with lengths like WMT14's, as
the recipes `base` and `big` do it.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from command_line import print_header

from aiayn_cli.data.batches import Position, plan_updates, pool_pairs_for, split_update
from aiayn_cli.data.collate import shape_of
from aiayn_cli.data.prepared import PreparedData
from aiayn_cli.data.store import SIDES, TokenStore
from aiayn_cli.model.cpu.packed_attention import pack
from aiayn_cli.train.compilation import few_shapes

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
from made_sentences import sentences_like_wmt


@dataclass(frozen=True)
class Padding:
    """Of one epoch."""

    share: float  # of places that belong to no token
    shapes: int
    batches: int

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} % padding, {self.shapes:,} shapes in {self.batches:,} batches"


def padding(store: TokenStore, batch_tokens: int, max_tokens: int, *, packed: bool) -> Padding:
    """What batches of the first epoch hold besides tokens, over both sides; packed one after the other as on a CPU."""
    places = tokens = batches = 0
    shapes: set[tuple[object, ...]] = set()
    pool = pool_pairs_for(batch_tokens)
    for update in plan_updates(store, batch_tokens, 1, Position(), pool):
        for pairs in split_update(store, update.pairs, max_tokens):
            if packed:
                sides = [pack(torch.from_numpy(store.lengths(pairs, side)).long() + 1) for side in SIDES]
                shapes.add(tuple((side.rows, side.sentences, side.length) for side in sides))
                places += sum(side.rows for side in sides)
            else:
                shape = few_shapes(shape_of(store, pairs), 1 << 30)
                shapes.add(shape)
                places += shape.pairs * (shape.src_length + shape.tgt_length)
            tokens += sum(int(store.lengths(pairs, side).sum()) + len(pairs) for side in SIDES)
            batches += 1
        if update.after.epoch:
            break
    return Padding(1 - tokens / places, len(shapes), batches)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="folders made by aiayn prepare")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="made-up pairs with lengths like WMT14's")
    arguments = parser.parse_args()
    print_header()
    with tempfile.TemporaryDirectory() as folder:
        stores = [(str(path), PreparedData.load(path).train, 4_096) for path in arguments.data]
        if arguments.pairs:
            made = sentences_like_wmt(Path(folder) / "made", arguments.pairs, 37_000)
            stores.append((f"{arguments.pairs:,} pairs like WMT14's", made, 25_000))
        for name, store, batch_tokens in stores:
            for label, packed in (("packed, as on a CPU", True), ("padded, as on a GPU", False)):
                most = min(batch_tokens, 4_096) if packed else batch_tokens
                found = padding(store, batch_tokens, most, packed=packed)
                print(f"{name}, {batch_tokens:,} tokens an update, {label}: {found}", flush=True)


if __name__ == "__main__":
    main()
