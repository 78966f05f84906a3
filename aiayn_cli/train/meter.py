"""What is measured between two records of metrics.jsonl."""

import math
import time
from dataclasses import dataclass

from aiayn_cli.checkpoint.metrics import perplexity


@dataclass(frozen=True)
class Done:
    """What the host knows of an update without asking the device.

    Attributes:
        step: its number.
        tgt_tokens: target tokens with end tokens, without padding.
        pairs: sentence pairs.
        flops: operations, as model/cost.py counts them.
        rate: learning rate.
    """

    step: int
    tgt_tokens: int
    pairs: int
    flops: int
    rate: float


class Meter:
    """Sums over the updates since the last record.

    Args:
        matmul_rate: FLOP/s of large matrix products on all devices together; NaN where unknown.
    """

    def __init__(self, matmul_rate: float) -> None:
        self._matmul_rate = matmul_rate
        self._nll, self._tokens, self._pairs, self._flops = 0.0, 0, 0, 0
        self._norm, self._rate = math.nan, math.nan
        self._seconds, self._clock = 0.0, time.perf_counter()

    def add(self, done: Done, nll: float, norm: float) -> None:
        """Take up an update: the sum of its negative log-likelihoods, in nats, and the norm of its gradient."""
        self._nll += nll
        self._tokens += done.tgt_tokens
        self._pairs += done.pairs
        self._flops += done.flops
        self._norm, self._rate = norm, done.rate
        now = time.perf_counter()
        self._seconds, self._clock = self._seconds + now - self._clock, now

    def restart_clock(self) -> None:
        """Leave out the time since the last update, which went into validation or a checkpoint."""
        self._clock = time.perf_counter()

    def record(self) -> dict[str, float]:
        """Loss and perplexity per target token (nats, without smoothing), speed without padding, the last rate.

        MFU (model FLOPs utilisation; Chowdhery et al. 2022, Appendix B) is the share of the devices' rate in large
        matrix products that went into counted operations.
        """
        loss = self._nll / self._tokens if self._tokens else math.nan
        flops_per_second = self._flops / self._seconds if self._seconds else math.nan
        return {
            "loss": loss,
            "perplexity": perplexity(loss),
            "learning_rate": self._rate,
            "gradient_norm": self._norm,
            "tokens_per_second": self._tokens / self._seconds if self._seconds else math.nan,
            "mfu": flops_per_second / self._matmul_rate,
            "pairs": self._pairs,
        }
