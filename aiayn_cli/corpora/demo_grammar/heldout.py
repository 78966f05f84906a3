"""Which word combinations of the built-in corpus training never sees.

Four kinds of combinations are split, each named by its English lemmas:

* ("adjective", "red", "car"): "the red car", "the car is red", "redder than the car" alike;
* ("subject", "dog", "follow"): who does it;
* ("object", "follow", "dog"): to whom or what it is done, in whatever case;
* ("preposition", "with", "dog"): after a freely chosen preposition.

Each word has a position in its table. A pair of positions belongs to validation or test by a fixed rule, independent
of the seed: about one of 14 to each, spread so that every word keeps most of its partners in training.
"""

from aiayn_cli.corpora.demo_grammar.lexicon import ADJECTIVES, NOUNS, PREPOSITIONS
from aiayn_cli.corpora.demo_grammar.phrases import Combination
from aiayn_cli.corpora.demo_grammar.verbs import VERBS

TRAIN, VALID, TEST = "train", "valid", "test"

_NOUN = {noun.en: position for position, noun in enumerate(NOUNS)}
_ADJECTIVE = {adjective.en: position for position, adjective in enumerate(ADJECTIVES)}
_VERB = {verb.key: position for position, verb in enumerate(VERBS)}
_PREPOSITION = {preposition.en: position for position, preposition in enumerate(PREPOSITIONS)}
_TABLES = {
    "adjective": (_ADJECTIVE, _NOUN),
    "subject": (_NOUN, _VERB),
    "object": (_VERB, _NOUN),
    "preposition": (_PREPOSITION, _NOUN),
}
_SHARE = 14


def split_of(combination: Combination) -> str:
    """Tell which split a combination belongs to: TRAIN, VALID or TEST."""
    kind, first, second = combination
    firsts, seconds = _TABLES[kind]
    remainder = (3 * firsts[first] + 5 * seconds[second]) % _SHARE
    return {0: VALID, 7: TEST}.get(remainder, TRAIN)


def held_out(split: str) -> list[Combination]:
    """List the combinations of VALID or TEST that the tables allow, sensible or not."""
    return [
        combination
        for kind, (firsts, seconds) in _TABLES.items()
        for first in firsts
        for second in seconds
        if split_of(combination := (kind, first, second)) == split
    ]
