"""Forbids tokens as the next ones of an output, whatever their probability; shared by all searches."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from aiayn_cli.parsing.tree_grammar import FREE, State, TreeGrammar
from aiayn_cli.special_tokens import EOS_ID, PAD_ID

_NEVER_PRODUCED = slice(0, EOS_ID)  # PAD, UNK, which would become a placeholder in the text, and BOS
_NOT_FORCED = -1


class TreeRules:
    """Lets a search write only trees over the words of its sentences that need no repair. For one thread.

    An output that breaks the rules, as a forced beginning can, is free from there on; so is one for which no tree fits
    into the longest output.

    Args:
        grammar: of the vocabulary.
        words: for each sentence, its words, escaped as in a tree; None = its outputs are free.
        max_lengths: for each sentence, the longest output in tokens with EOS.
    """

    def __init__(self, grammar: TreeGrammar, words: Sequence[Sequence[str] | None], max_lengths: Sequence[int]) -> None:
        self._grammar, self._max_lengths = grammar, max_lengths
        self._starts = [None if each is None else grammar.start(each) for each in words]
        # The states of each sentence's outputs at the last step, by the bytes of their tokens.
        self._known: list[dict[bytes, State | None]] = [{} for _ in words]
        self._table = torch.empty(0, 0, dtype=torch.bool)

    def apply(
        self, log_probs: Tensor, outputs: Tensor, lengths: Tensor, sentences: Sequence[int], free: Tensor | None = None
    ) -> None:
        """As Restrictions.apply(); `free`, bool [batch], is False where the next token is forced; None = all True."""
        batch, beams, vocab = log_probs.shape
        known = self._grammar.size
        rows: list[int] = []
        at: list[int] = []  # rows with tokens that are allowed whatever the table says, and these tokens
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
        if known < vocab:  # the rest are sub-words of the source side alone
            ruled = (numbers != FREE).view(batch, beams, 1)
            log_probs[:, :, known:].masked_fill_(ruled, -torch.inf)

    def _states(self, outputs: "np.ndarray[tuple[int, int], np.dtype[np.int32]]", sentence: int) -> list[State | None]:
        """The states of a sentence's outputs, int32 [beams, steps]."""
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
        """The grammar's table so far, bool [rows, vocab]."""
        if len(self._table) < len(self._grammar.table) or self._table.device != device:
            self._table = torch.stack(list(self._grammar.table)).to(device)
        return self._table


class Restrictions:
    """Minimum lengths, forced beginnings, a ban on repeated n-grams and rules for trees, for the sentences of a search.

    A forced beginning overrides everything, and the rules for trees override the ban and the minimum length where
    these would leave no token.

    Args:
        min_lengths: for each sentence, the shortest output in tokens with EOS; empty = 1 for all.
        prefixes: for each sentence, the tokens that its outputs begin with, fewer than its longest output has;
            empty = free.
        no_repeat_ngram: length of the n-grams that no output repeats, outside its prefix; 0 = no ban.
        tree_rules: for outputs that must be trees.
    """

    def __init__(
        self,
        min_lengths: Sequence[int] = (),
        prefixes: Sequence[Sequence[int]] = (),
        no_repeat_ngram: int = 0,
        tree_rules: TreeRules | None = None,
    ) -> None:
        self._min_lengths = torch.tensor(min_lengths) if max(min_lengths, default=1) > 1 else None
        width = max(map(len, prefixes), default=0)
        rows = [[*prefix, *[_NOT_FORCED] * (width + 1 - len(prefix))] for prefix in prefixes]
        self._prefixes = torch.tensor(rows) if width else None  # [sentences, width + 1]; the last column is free
        self._no_repeat_ngram = no_repeat_ngram
        self._tree_rules = tree_rules

    def apply(self, log_probs: Tensor, outputs: Tensor, lengths: Tensor, sentences: Sequence[int]) -> None:
        """Set forbidden next tokens to -inf, in place.

        Args:
            log_probs: [batch, beams, vocab], of the next token.
            outputs: int64 [batch, beams, steps], the tokens so far; those beyond `lengths` are ignored.
            lengths: int64 [batch], tokens in the outputs of each sentence.
            sentences: [batch], the index of each sentence in this object's lists.
        """
        log_probs[:, :, _NEVER_PRODUCED] = -torch.inf
        forced = None
        if self._prefixes is not None:
            place = lengths.clamp(max=self._prefixes.shape[1] - 1).unsqueeze(1)
            forced = self._prefixes[list(sentences)].to(lengths.device).gather(1, place).squeeze(1)
            _force(log_probs, forced)
        # A forced token can repeat others and break rules: a ban would leave nothing.
        free = None if forced is None else forced == _NOT_FORCED
        if self._tree_rules is not None:
            self._tree_rules.apply(log_probs, outputs, lengths, sentences, free)
        if self._no_repeat_ngram:
            before = None if self._tree_rules is None else log_probs.clone()
            _forbid_repeats(log_probs, outputs, lengths, self._no_repeat_ngram, free)
            if before is not None:
                nothing = log_probs.amax(2) == -torch.inf
                log_probs[nothing] = before[nothing]
        if self._min_lengths is not None:
            too_short = lengths + 1 < self._min_lengths[list(sentences)].to(lengths.device)
            _forbid_end(log_probs, too_short)


def _forbid_end(log_probs: Tensor, where: Tensor) -> None:
    """Forbid EOS in some sentences, bool [batch], unless it is the only token left."""
    others = torch.cat([log_probs[..., :EOS_ID], log_probs[..., EOS_ID + 1 :]], dim=-1)
    forbidden = where.unsqueeze(1) & (others.amax(-1) > -torch.inf)
    log_probs[..., EOS_ID].masked_fill_(forbidden, -torch.inf)


def _force(log_probs: Tensor, tokens: Tensor) -> None:
    """Leave only the given token of each sentence, int64 [batch]; _NOT_FORCED leaves all."""
    forced = (tokens != _NOT_FORCED).nonzero().squeeze(1)
    if forced.numel():
        rows = log_probs[forced]
        index = tokens[forced].view(-1, 1, 1).expand(-1, rows.shape[1], 1)
        log_probs[forced] = torch.full_like(rows, -torch.inf).scatter(2, index, rows.gather(2, index))


def _forbid_repeats(log_probs: Tensor, outputs: Tensor, lengths: Tensor, n: int, where: Tensor | None) -> None:
    """Forbid each token that would repeat an n-gram, in some sentences, bool [batch]; None = all."""
    steps = outputs.shape[2]
    if steps < n:
        return
    # The last n - 1 tokens of each output, and each earlier place where the same ones stand.
    ending = (lengths.view(-1, 1) + torch.arange(1 - n, 0, device=lengths.device)).clamp(min=0)
    last = outputs.gather(2, ending.unsqueeze(1).expand(-1, outputs.shape[1], -1))  # [batch, beams, n - 1]
    ngrams = outputs.unfold(2, n, 1)  # [batch, beams, steps - n + 1, n]
    whole = torch.arange(n, steps + 1, device=lengths.device) <= lengths.unsqueeze(1)  # [batch, steps - n + 1]
    if where is not None:
        whole = whole & where.unsqueeze(1)
    repeated = (ngrams[..., :-1] == last.unsqueeze(2)).all(-1) & whole.unsqueeze(1)
    # Rows have equally many indices; unused ones point to PAD, which is never produced anyway.
    log_probs.scatter_(2, ngrams[..., -1].masked_fill(~repeated, PAD_ID), -torch.inf)
