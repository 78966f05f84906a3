"""Sequences of a batch one after the other, without padding, and where attention finds them.

All that a Transformer does position by position (projections, feed-forward networks, norms, dropout, the loss) runs
on [rows, d_model], one row a token. Only attention needs sequences side by side: it gathers its queries, keys and
values into a grid [sentences x heads, positions, d_k], which replaces the copies that splitting heads makes anyway.

oneDNN compiles its products anew for every shape, at about a millisecond and 0.6 MB each, so shapes come from short
lists: rows are rounded up with rows that belong to no token, and sides of the grid with places that hold none.
Sentences of up to 250 tokens in updates of 4,096 then need some 1,700 products, which device.py makes room for.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from aiayn_cli.model.masks import padding_mask

# Steps of each size between a power of two and the next. Rows cost in every product, places of the grid hardly.
_ROW_STEPS, _SENTENCE_STEPS, _POSITION_STEPS = 32, 8, 4
_SHORTEST = 16  # positions; the softmax of fewer numbers than a vector register holds is slow


@dataclass(frozen=True, eq=False)
class Packing:
    """Where the tokens of some sequences are; pack() makes it.

    Attributes:
        tokens: how many there are: the first rows. The rows after them belong to no token; there is at least one.
        rows: their number, with the others.
        sentences, length: sides of the grid.
        positions: int64 [rows], each token's place in its sequence, from 0.
        rows_of_places: int64 [sentences, length], the row of each place of the grid; the last row where none.
        places_of_rows: int64 [rows], the reverse, as numbers sentence * length + position.
        is_token: bool [sentences, length]. The first place of a sentence that is none counts as one, so that there is
            something to attend to.
    """

    tokens: int
    rows: int
    sentences: int
    length: int
    positions: Tensor
    rows_of_places: Tensor
    places_of_rows: Tensor
    is_token: Tensor
    _indices: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    def indices(self, parts: int, heads: int) -> tuple[Tensor, Tensor]:
        """Where heads find their vectors, which stand as [rows, parts, heads, d_k] in a projection, and the reverse.

        Args:
            parts: 3 for queries, keys and values, 2 for keys and values, 1 for any one.
            heads: of the attention.
        Returns:
            int64 [parts * sentences * heads * length]: for each place of [parts, sentences, heads, length] a number
            row * parts * heads + part * heads + head; and int64 [rows * parts * heads] for the way back.
        """
        if (parts, heads) not in self._indices:
            # There: [parts, sentences, heads, length].
            part, head = torch.arange(parts)[:, None, None, None], torch.arange(heads)[:, None]
            there = (self.rows_of_places[:, None] * parts + part) * heads + head
            # Back: [rows, parts, heads].
            sentence = torch.div(self.places_of_rows, self.length, rounding_mode="floor")[:, None, None]
            place = (self.places_of_rows % self.length)[:, None, None]
            part, head = torch.arange(parts)[:, None], torch.arange(heads)
            back = ((part * self.sentences + sentence) * heads + head) * self.length + place
            self._indices[parts, heads] = there.flatten(), back.flatten()
        return self._indices[parts, heads]

    def padding_mask(self) -> Tensor:
        """Bool [sentences, 1, 1, length], True = may be attended to."""
        return padding_mask(self.is_token)


def pack(lengths: Tensor) -> Packing:
    """Lay sequences one after the other.

    Args:
        lengths: int64 [sentences], each at least 1, on the CPU.
    """
    tokens, count = int(lengths.sum()), len(lengths)
    rows = rounded_up(tokens + 1, _ROW_STEPS)
    sentences = rounded_up(count, _SENTENCE_STEPS)
    length = rounded_up(max(_SHORTEST, int(lengths.max())), _POSITION_STEPS)
    starts = lengths.cumsum(0) - lengths
    sentence_of_token = torch.repeat_interleave(torch.arange(count), lengths)
    positions = torch.zeros(rows, dtype=torch.int64)
    positions[:tokens] = torch.arange(tokens) - starts[sentence_of_token]
    places_of_rows = torch.zeros(rows, dtype=torch.int64)
    places_of_rows[:tokens] = sentence_of_token * length + positions[:tokens]
    rows_of_places = torch.full((sentences * length,), rows - 1)
    rows_of_places[places_of_rows[:tokens]] = torch.arange(tokens)
    is_token = torch.zeros(sentences * length, dtype=torch.bool)
    is_token[places_of_rows[:tokens]] = True
    is_token = is_token.view(sentences, length)
    is_token[count:, 0] = True
    return Packing(
        tokens, rows, sentences, length, positions, rows_of_places.view(sentences, length), places_of_rows, is_token
    )


def rounded_up(size: int, steps: int) -> int:
    """The next of the sizes that divide each way from a power of two to the next into so many steps."""
    step = max(1, (1 << size.bit_length() - 1) // steps)
    return -(-size // step) * step
