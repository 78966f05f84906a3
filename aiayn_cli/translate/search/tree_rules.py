"""Lets a search write only what becomes a tree over the words of its sentence with no repair."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from aiayn_cli.parsing.tree_grammar import FREE, State, TreeGrammar


class TreeRules:
    """The rules for the sentences of one search; one thread uses it.

    An output that breaks them, as a forced beginning may, is free from there on; so is one for which no tree fits into
    the longest output.

    Args:
        grammar: of the vocabulary.
        words: for each sentence, its words as a tree writes them; None = its outputs are free.
        max_lengths: the longest output of each, in tokens with EOS.
    """

    def __init__(self, grammar: TreeGrammar, words: Sequence[Sequence[str] | None], max_lengths: Sequence[int]) -> None:
        self._grammar = grammar
        self._max_lengths = list(max_lengths)
        self._starts = [None if each is None else grammar.start(each) for each in words]
        # For each sentence what is known of its outputs at the last step, by their tokens' bytes.
        self._known: list[dict[bytes, State | None]] = [{} for _ in words]
        self._table = torch.empty(0, 0, dtype=torch.bool)

    def apply(
        self, log_probs: Tensor, outputs: Tensor, lengths: Tensor, sentences: Sequence[int], free: Tensor | None = None
    ) -> None:
        """Set to -inf, in place, what may not come next.

        Args:
            log_probs, outputs, lengths, sentences: as in Restrictions.apply().
            free: bool [batch], False where the next token of a sentence is given, so that no rule holds for it; None =
                it is nowhere.
        """
        batch, beams, vocab = log_probs.shape
        known = self._grammar.size
        rows: list[int] = []
        at: list[int] = []  # rows with tokens that may come whatever the table says, and these tokens
        tokens: list[int] = []
        history = outputs.to("cpu", torch.int32).numpy()
        obeyed = [True] * len(history) if free is None else free.tolist()
        for of_beams, n_read, sentence, rules_hold in zip(history, lengths.tolist(), sentences, obeyed, strict=True):
            left = self._max_lengths[sentence] - n_read
            for state in self._states(of_beams[:, :n_read], sentence):
                row, also = self._grammar.choices(state, left) if state and rules_hold else (FREE, [])
                at += [len(rows)] * len(also)
                tokens += also
                rows.append(row)
        if not any(rows):
            return
        numbers = torch.tensor(rows, device=log_probs.device)
        forbidden = self._forbidden(log_probs.device)[numbers]
        places = torch.tensor([at, tokens], dtype=torch.long, device=log_probs.device)
        forbidden[places[0], places[1]] = False
        log_probs[:, :, :known].masked_fill_(forbidden.view(batch, beams, known), -torch.inf)
        if known < vocab:  # of the source side alone
            ruled = (numbers != FREE).view(batch, beams, 1)
            log_probs[:, :, known:].masked_fill_(ruled, -torch.inf)

    def _states(self, outputs: "np.ndarray[tuple[int, int], np.dtype[np.int32]]", sentence: int) -> list[State | None]:
        """The states of a sentence's outputs, [beams, steps]."""
        beams, n_read = outputs.shape
        if n_read == 0 or self._starts[sentence] is None:
            return [self._starts[sentence]] * beams
        written, width = outputs.tobytes(), n_read * outputs.itemsize
        known = self._known[sentence]
        found: dict[bytes, State | None] = {}
        states = []
        for beam, token in enumerate(outputs[:, -1].tolist()):
            end = (beam + 1) * width
            before = written[beam * width : end - outputs.itemsize]
            if (state := known.get(before)) is None and before not in known:
                state = self._replayed(outputs[beam, :-1].tolist(), sentence)
            state = None if state is None else self._grammar.follow(state, token)
            found[written[beam * width : end]] = state
            states.append(state)
        self._known[sentence] = found
        return states

    def _replayed(self, tokens: Sequence[int], sentence: int) -> State | None:
        state = self._starts[sentence]
        for token in tokens:
            state = None if state is None else self._grammar.follow(state, token)
        return state

    def _forbidden(self, device: torch.device) -> Tensor:
        """The grammar's table as it is now, [rows, vocab]."""
        if len(self._table) < len(self._grammar.table) or self._table.device != device:
            self._table = torch.stack(list(self._grammar.table)).to(device)
        return self._table
