"""The rule by which word combinations are held out."""

from collections import Counter

from aiayn_cli.corpora.demo_grammar.heldout import TEST, TRAIN, VALID, held_out, split_of
from aiayn_cli.corpora.demo_grammar.lexicon import ADJECTIVES, NOUNS, PREPOSITIONS
from aiayn_cli.corpora.demo_grammar.verbs import VERBS


def test_validation_and_test_share_no_word_pair() -> None:
    assert not set(held_out(VALID)) & set(held_out(TEST))
    assert {split_of(pair) for pair in held_out(TEST)} == {TEST}


def test_each_kind_of_pair_holds_out_about_one_in_fourteen_for_each() -> None:
    sizes = {
        "adjective": len(ADJECTIVES) * len(NOUNS),
        "subject": len(NOUNS) * len(VERBS),
        "object": len(VERBS) * len(NOUNS),
        "preposition": len(PREPOSITIONS) * len(NOUNS),
    }
    for split in (VALID, TEST):
        found = Counter(kind for kind, _, _ in held_out(split))
        for kind, size in sizes.items():
            assert 1 / 20 < found[kind] / size < 1 / 10


def test_every_sensible_word_keeps_most_of_its_partners_in_training() -> None:
    for adjective in ADJECTIVES:
        nouns = [noun for noun in NOUNS if noun.kind in adjective.kinds]
        kept = [noun for noun in nouns if split_of(("adjective", adjective.en, noun.en)) == TRAIN]
        assert len(kept) >= len(nouns) / 2
    for verb in VERBS:
        subjects = [noun for noun in NOUNS if noun.kind in verb.subjects]
        assert sum(split_of(("subject", noun.en, verb.key)) == TRAIN for noun in subjects) >= len(subjects) / 2
        objects = [noun for noun in NOUNS if noun.kind in verb.objects]
        assert sum(split_of(("object", verb.key, noun.en)) == TRAIN for noun in objects) >= len(objects) / 2
