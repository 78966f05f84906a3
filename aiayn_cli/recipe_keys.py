"""Every setting, its default, unit and source: the one place where a default is written.

One frozen dataclass per section of a recipe. The defaults are the paper's base model ("Attention Is All You
Need", 2017: Table 3, Sections 5 and 6). A value that cannot work is refused here, with its name and a way out.
"""

import math
from dataclasses import dataclass, field, fields
from typing import Literal, get_args, get_origin

from aiayn_cli.errors import ConfigError

ModelKind = Literal["transformer", "recurrent", "convolutional"]
Norm = Literal["post", "pre"]
Positions = Literal["sinusoidal", "learned"]
ShareEmbeddings = Literal["all", "decoder", "none"]
Precision = Literal["auto", "bf16", "fp32"]
Compile = Literal["auto", "on", "off", "graphs"]
BestMetric = Literal["bleu", "loss"]
OnBadBytes = Literal["stop", "drop"]
VocabType = Literal["bpe", "unigram"]

MOST_SUB_WORDS = 1_000_000  # of a vocabulary; a unigram model starts with at most that many candidates


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """What is done to text before it is split into sub-words; `translate` does the same, and undoes it after."""

    normaliser: int = 0  # version of text/normalise.py; 0 = text is read as it is, as models did before there was one
    normalise_punctuation: bool = False  # quotation marks, dashes and the like, as the Moses script does
    moses_tokenise: bool = False  # blanks around punctuation, as the Moses script does
    trees: bool = False  # the target side is constituency trees, written as sequences (parsing/tree_text.py)
    tree_tags: bool = True  # with the part of speech of each word
    tree_words: bool = False  # with the words themselves

    @property
    def normalises(self) -> bool:
        return self.normaliser > 0 and not self.trees  # the words of trees stay as they are

    @property
    def changes_text(self) -> bool:
        return self.normalise_punctuation or self.moses_tokenise or self.trees


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """What `prepare` does with a corpus, and which corpus `train` takes when none is named."""

    corpus: str = "wmt14-en-de"  # prepared/CORPUS is what `train` reads without --data
    vocab_size: int = 37_000  # joint sub-word vocabulary, special tokens included (Section 5.1)
    max_length: int = 250  # sub-word tokens on either side; a longer training pair is dropped
    max_ratio: float = 1.5  # longer side / shorter side in tokens; see prepare/drop_rules.py for short pairs
    max_words: int = 250  # words between blanks on either side; a longer training pair is dropped; 0 = no limit
    dedupe: bool = True  # drop a training pair that was seen before
    drop_identical: bool = True  # drop a training pair whose sides are the same text
    drop_no_letters: bool = True  # drop a training pair with a side that has no letter
    drop_wrong_script: bool = True  # drop a training pair with a side in a script its language is not written in
    drop_overlap: bool = True  # drop a training pair if either side is in the validation or test text
    drift_alarm: bool = True  # stop where one of two files has lost or gained lines; see prepare/drift.py
    case_copies: float = 0.05  # share of the training pairs added again in upper or title case
    normaliser: int = (
        1  # one form of Unicode text: blanks, invisible characters, accents (text/normalise.py); 0 = as it is
    )
    normalise_punctuation: bool = False  # as the Moses script does; needs sacremoses
    moses_tokenise: bool = False  # as the Moses script does, undone by `translate`; needs sacremoses
    trees: bool = False  # the target side is constituency trees (Section 6.3); --trees sets it
    tree_tags: bool = True  # the model writes the part of speech of each word
    tree_words: bool = False  # the model writes the words too, which the source side has already
    tree_functions: bool = False  # labels keep function labels and indices, such as -SBJ in NP-SBJ
    vocab_type: VocabType = "bpe"  # byte-pair encoding (Section 5.1), or a unigram language model (Kudo 2018)
    separate_vocabs: bool = False  # one vocabulary for each side, of vocab_size each, instead of a joint one
    byte_fallback: bool = False  # write characters outside the vocabulary as bytes instead of <unk>
    on_bad_bytes: OnBadBytes = "stop"  # invalid UTF-8 or NUL: stop with its place, or drop that pair
    seed: int = 1  # vocabulary sample and held-out split

    def __post_init__(self) -> None:
        _check_choices("data", self)
        hint = "37000 in the paper, 8000 for 100,000 to 500,000 pairs"
        _check_at_least("data.vocab_size", self.vocab_size, 8, hint, MOST_SUB_WORDS)
        _check_at_least("data.normaliser", self.normaliser, 0, "1, or 0 for text as it is", 1)
        _check_at_least("data.max_length", self.max_length, 1, "250 sub-word tokens is usual")
        _check_at_least("data.max_ratio", self.max_ratio, 1.0, "1.5 is usual; a large number such as 100 keeps all")
        _check_at_least("data.max_words", self.max_words, 0, "250 words is generous; 0 sets no limit")
        _check_probability("data.case_copies", self.case_copies, "0.05 is usual; 0 adds none")
        if self.byte_fallback:
            _check_at_least("data.vocab_size", self.vocab_size, 300, "byte_fallback takes 256 of them")
        if self.trees:
            for name in ("normalise_punctuation", "moses_tokenise"):
                hint = "the words of trees stay as they are"
                _check(not getattr(self, name), f"data.{name}", "is true, but so is data.trees", hint)
            hint = "set it to 0: in other case the labels of trees would be other labels"
            problem = f"is {self.case_copies:g}, but data.trees is true"
            _check(not self.case_copies, "data.case_copies", problem, hint)
            hint = "a tree may span several lines, none of which can be dropped: repair the file"
            _check(self.on_bad_bytes != "drop", "data.on_bad_bytes", "is drop, but data.trees is true", hint)
        _check_seed("data.seed", self.seed)
        _check(self.corpus.strip() != "", "data.corpus", "is empty", "name a corpus, such as demo")

    @property
    def text(self) -> TextConfig:
        return TextConfig(**{each.name: getattr(self, each.name) for each in fields(TextConfig)})


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Shape of the network (Table 3, row base)."""

    kind: ModelKind = "transformer"  # transformer, or what the paper compares it with: recurrent, convolutional
    n_encoder_layers: int = 6  # N of the encoder stack (Section 3.1)
    n_decoder_layers: int = 6  # N of the decoder stack
    d_model: int = 512  # width of every sub-layer's output
    d_ff: int = 2048  # width inside the feed-forward network (Section 3.3)
    n_heads: int = 8  # attention heads (Section 3.2.2)
    d_k: int = 64  # width of one head's queries and keys
    d_v: int = 64  # width of one head's values
    dropout: float = 0.1  # probability, on each sub-layer's output and on embedding + position (Section 5.4)
    attention_dropout: float = 0.0  # probability, on attention weights; not in the paper
    activation_dropout: float = 0.0  # probability, after the feed-forward network's ReLU; not in the paper
    norm: Norm = "post"  # post: LayerNorm(x + Sublayer(x)), the paper; pre: x + Sublayer(LayerNorm(x)), final norm
    positions: Positions = "sinusoidal"  # sinusoidal (Section 3.5) or learned (Table 3, row E)
    max_positions: int = 1024  # rows of a learned position table, in tokens; sinusoidal positions have no limit
    attention_window: int = 0  # self-attention reaches this many tokens to each side (Section 4's r); 0 = all
    share_embeddings: ShareEmbeddings = "all"  # all: source, target, pre-softmax; decoder: the last two; none
    kernel_size: int = 3  # tokens that a convolution of a convolutional model sees (Gehring et al. 2017)
    attention_bias: bool = False  # biases in the attention projections; the paper's equations have none

    def __post_init__(self) -> None:
        _check_choices("model", self)
        for name in (
            *("n_encoder_layers", "n_decoder_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v"),
            *("max_positions", "kernel_size"),
        ):
            hint = f"the paper's base model has {getattr(ModelConfig, name)}"
            _check_at_least(f"model.{name}", getattr(self, name), 1, hint)
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            _check_probability(f"model.{name}", getattr(self, name), "the paper uses 0.1 (base) and 0.3 (big)")
        _check_at_least("model.attention_window", self.attention_window, 0, "0 lets every position see all others")
        if self.kind != "transformer":
            for name in ("norm", "attention_window", "attention_bias"):
                value, default = getattr(self, name), getattr(ModelConfig, name)
                problem = f"is {value}, but a {self.kind} model has no such thing"
                _check(value == default, f"model.{name}", problem, f"leave it at {default}, or use kind: transformer")
        problem, hint = f"is {self.d_model}, but", f"use {self.d_model + 1}"
        is_even = self.d_model % 2 == 0
        if self.kind == "recurrent":
            problem = f"{problem} a recurrent encoder reads with half of it in each direction"
            _check(is_even, "model.d_model", problem, hint)
        elif self.positions == "sinusoidal":
            problem = f"{problem} sinusoidal positions need an even width"
            _check(is_even, "model.d_model", problem, f"{hint}, or positions: learned")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How the network learns (Section 5), and what is kept on the way."""

    batch_tokens: int = 25_000  # tokens in one update over all devices, the longer side of each pair (Section 5.1)
    max_tokens: int = 0  # padded tokens of a side in one forward pass on one device (+ 1/16); 0 = what the device suits
    max_updates: int = 100_000  # updates in all (Section 5.2: base 100,000; big 300,000)
    learning_rate_scale: float = 1.0  # factor on the paper's schedule (Section 5.3)
    warmup_steps: int = 4_000  # updates of linear rise (Section 5.3)
    adam_beta1: float = 0.9  # (Section 5.3)
    adam_beta2: float = 0.98  # (Section 5.3)
    adam_eps: float = 1e-9  # (Section 5.3)
    label_smoothing: float = 0.1  # mass spread over all classes (Section 5.4)
    ema_decay: float = 0.0  # of a moving average of the weights, for `average --ema`; 0 = none; 0.999 or more is usual
    clip_norm: float = 0.0  # largest norm of one update's gradient; 0 = no clipping, as in the paper
    exploding_norm: float = 100.0  # an update whose gradient norm is so many times the usual is skipped; 0 = never
    save_every_steps: int = 1_500  # updates between checkpoints (about the paper's 10 minutes at 0.4 s an update)
    save_every_minutes: float = 0.0  # minutes of training between checkpoints instead; 0 = save_every_steps counts
    keep_checkpoints: int = 5  # newest checkpoints kept in addition to the best; never fewer than average_last
    average_last: int = 5  # checkpoints that `average` takes (Section 6.1: base 5, big 20)
    validate_every_saves: int = 1  # checkpoints between validations; only what is saved is validated
    best_metric: BestMetric = "bleu"  # what makes a checkpoint the best: bleu (higher) or loss (lower)
    validation_bleu_pairs: int = 500  # validation pairs translated for BLEU at each validation; 0 = none
    patience: int = 0  # validations without a better one before training stops; 0 = never stop early
    log_every_steps: int = 50  # updates between lines of metrics.jsonl
    precision: Precision = "auto"  # auto: bf16 where the device computes it fast, else fp32
    compile: Compile = "auto"  # torch.compile; auto = on a GPU only; graphs = also as CUDA graphs, see compilation.py
    seed: int = 1  # initial weights, order of the data, dropout

    def __post_init__(self) -> None:
        _check_choices("training", self)
        for name in (
            *("batch_tokens", "max_updates", "warmup_steps", "save_every_steps", "keep_checkpoints", "average_last"),
            *("validate_every_saves", "log_every_steps"),
        ):
            _check_at_least(f"training.{name}", getattr(self, name), 1, f"base has {getattr(TrainingConfig, name):,}")
        _check_seed("training.seed", self.seed)
        for name in ("max_tokens", "validation_bleu_pairs", "patience"):
            _check_at_least(f"training.{name}", getattr(self, name), 0, "use 0 or more")
        for name in ("adam_beta1", "adam_beta2", "label_smoothing"):
            _check_probability(f"training.{name}", getattr(self, name), "the paper uses 0.9, 0.98 and 0.1")
        for name in ("learning_rate_scale", "adam_eps"):
            problem = f"is {getattr(self, name)}, but must be above 0"
            _check(getattr(self, name) > 0, f"training.{name}", problem, "the paper's values are 1.0 and 1e-9")
        _check_probability("training.ema_decay", self.ema_decay, "0.9999 remembers some 10,000 updates; 0 keeps none")
        _check_at_least("training.clip_norm", self.clip_norm, 0, "0 turns clipping off")
        _check_at_least("training.save_every_minutes", self.save_every_minutes, 0, "the paper's is 10; 0 turns it off")
        _check_at_least("training.exploding_norm", self.exploding_norm, 0, "100 is usual; 0 lets every norm pass")
        has_bleu, problem = self.validation_bleu_pairs > 0, "is bleu, but training.validation_bleu_pairs is 0"
        hint = "set best_metric: loss, or translate some validation pairs"
        _check(self.best_metric != "bleu" or has_bleu, "training.best_metric", problem, hint)
        problem = f"is {self.keep_checkpoints}, fewer than average_last ({self.average_last})"
        hint = f"set keep_checkpoints to {self.average_last} or more, so that averaging finds what it needs"
        _check(self.keep_checkpoints >= self.average_last, "training.keep_checkpoints", problem, hint)


MOST_HYPOTHESES = 1_000  # of a sentence: each has a row of vocabulary-size scores and a cache at every step


@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """How a trained model translates (Section 6.1)."""

    beam_size: int = 4  # hypotheses kept at each step
    alpha: float = 0.6  # length penalty ((5 + n) / 6) ** alpha, Wu et al. 2016
    max_extra: int = 50  # longest output = input length + max_extra, in tokens
    batch_tokens: int = 2_000  # padded source tokens translated together
    tree_rules: bool = True  # a parser writes only what is a tree over its words; false = unrestricted

    def __post_init__(self) -> None:
        _check_at_least("decoding.beam_size", self.beam_size, 1, "4 in the paper; 1 is greedy search", MOST_HYPOTHESES)
        # At most 10: the penalty has to fit a float32.
        _check_at_least("decoding.alpha", self.alpha, 0, "the paper uses 0.6; 0 means no penalty", 10)
        _check_at_least("decoding.max_extra", self.max_extra, 1, "the paper uses 50")
        _check_at_least("decoding.batch_tokens", self.batch_tokens, 1, "2000 suits two cores")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One experiment: data, model, training and decoding; recipes/*.yaml has one file for each."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)


def _check(holds: bool, key: str, problem: str, hint: str) -> None:
    if not holds:
        raise ConfigError(f"{key} {problem}", hint, key=key)


def _check_at_least(key: str, value: float, least: float, hint: str, most: float = math.inf) -> None:
    _check(value >= least, key, f"is {value}, but must be at least {least}", hint)  # NaN fails too
    _check(value <= most, key, f"is {value}, but must be at most {most}", hint)
    _check(value != math.inf, key, f"is {value}, but must be a number", hint)  # JSON cannot hold it


def _check_seed(key: str, value: int) -> None:
    most = (1 << 32) - 1
    _check(0 <= value <= most, key, f"is {value}, but must be from 0 to {most}", "any such number will do")


def _check_probability(key: str, value: float, hint: str) -> None:
    _check(0 <= value < 1, key, f"is {value}, but must be in [0, 1)", hint)


def _check_choices(section: str, config: DataConfig | ModelConfig | TrainingConfig) -> None:
    """Check every field whose type lists its values."""
    for each in fields(config):
        if get_origin(each.type) is Literal:
            value, allowed = getattr(config, each.name), get_args(each.type)
            problem = f"is {value!r}, but must be one of {', '.join(allowed)}"
            _check(value in allowed, f"{section}.{each.name}", problem, f"use {allowed[0]}")
