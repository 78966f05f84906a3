"""What may not come next in an output, whatever the model thinks of it; shared by all kinds of search."""

from collections.abc import Sequence

import torch
from torch import Tensor

from aiayn_cli.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from aiayn_cli.translate.search.tree_rules import TreeRules

NEVER_PRODUCED = (PAD_ID, UNK_ID, BOS_ID)  # UNK would be decoded to a placeholder that no reader wants
_NOT_FORCED = -1


class Restrictions:
    """Minimum lengths, forced beginnings, a ban on repeated n-grams and rules for trees, for the sentences of a search.

    A forced beginning goes before all else, and the rules for trees before the ban and the minimum length: these are
    not obeyed where they would leave nothing.

    Args:
        min_lengths: for each sentence, tokens with EOS before which no output ends; none at all = 1 for all.
        prefixes: for each sentence, the tokens with which its outputs begin; none at all = free. They must be shorter
            than its longest output.
        no_repeat_ngram: length of the sequences of tokens that no output holds twice, but in its prefix; 0 = no ban.
        tree_rules: where outputs have to be trees.
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
        self._never_produced = torch.tensor(NEVER_PRODUCED)

    def apply(self, log_probs: Tensor, outputs: Tensor, lengths: Tensor, sentences: Sequence[int]) -> None:
        """Set to -inf, in place, what may not come next.

        Args:
            log_probs: [batch, beams, vocab], of the next token.
            outputs: int64 [batch, beams, steps], the tokens so far from the first one on; what follows them is ignored.
            lengths: int64 [batch], how many there are in the outputs of each sentence.
            sentences: [batch], the number of each sentence in this object's lists.
        """
        self._never_produced = self._never_produced.to(log_probs.device)
        log_probs.index_fill_(2, self._never_produced, -torch.inf)
        forced = None
        if self._prefixes is not None:
            place = lengths.clamp(max=self._prefixes.shape[1] - 1).unsqueeze(1)
            forced = self._prefixes[list(sentences)].to(lengths.device).gather(1, place).squeeze(1)
            _force(log_probs, forced)
        # What a prefix forces may repeat, and break rules: a ban would leave nothing at all.
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
    """Forbid EOS in some sentences, bool [batch], but never the only token that is left."""
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
    """Forbid each token that would end an n-gram for the second time, in some sentences, bool [batch]; None = all."""
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
    # A free place is written too, so that each row has as many places: PAD, which is never produced anyway.
    log_probs.scatter_(2, ngrams[..., -1].masked_fill(~repeated, PAD_ID), -torch.inf)
