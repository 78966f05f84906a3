"""Questions, complex and compound sentences, against translations written by hand."""

import pytest

from aiayn_cli.corpora.demo_grammar.adverbials import Fixed
from aiayn_cli.corpora.demo_grammar.clauses import Clause, Gap, Predicate, Relative
from aiayn_cli.corpora.demo_grammar.conjugation import Tense
from aiayn_cli.corpora.demo_grammar.determiners import A
from aiayn_cli.corpora.demo_grammar.lexicon import ADJECTIVES, NOUNS
from aiayn_cli.corpora.demo_grammar.phrases import HE, IT, THEY, WE, WHAT, WHO, YOU, I, NounPhrase, Phrase, name
from aiayn_cli.corpora.demo_grammar.sentences import Complex, Compound, Sentence, Statement, WordQuestion, YesNoQuestion
from aiayn_cli.corpora.demo_grammar.verbs import BE, BY_KEY, KNOW_THAT, RAIN

ANNA, PAUL = name("Anna"), name("Paul")
NOUN = {noun.en: noun for noun in NOUNS}
PROGRESSIVE, PAST = Tense.PROGRESSIVE, Tense.PAST
BECAUSE = ("because", "weil")


def the(noun: str) -> NounPhrase:
    return NounPhrase(NOUN[noun])


def clause(subject: Phrase, verb: str, tense: Tense, what: Phrase | None = None) -> Clause:
    return Clause(subject, BY_KEY[verb], tense, what)


BLUE_BICYCLE = NounPhrase(NOUN["bicycle"], determiner=A, adjectives=tuple(a for a in ADJECTIVES if a.en == "blue"))
OLDER = Predicate(next(a for a in ADJECTIVES if a.en == "old"), ANNA)
EVERY_DAY = Fixed("every day", "jeden Tag")
STAYING = Clause(THEY, BY_KEY["stay"], PROGRESSIVE, complement=Fixed("at home", "zu Hause"))
DOCTOR = NounPhrase(NOUN["doctor"], relative=Relative(clause(the("doctor"), "cry", PROGRESSIVE), Gap.SUBJECT))
NOT_SLEEPING = Clause(the("bird"), BY_KEY["fall asleep"], PROGRESSIVE, negated=True)

SENTENCES = [
    ("Anna is working because you are opening the window.", "Anna arbeitet, weil du das Fenster aufmachst.",
     Complex(clause(ANNA, "work", PROGRESSIVE), BECAUSE, clause(YOU, "open", PROGRESSIVE, the("window")))),
    ("Because it is raining, they are staying at home.", "Weil es regnet, bleiben sie zu Hause.",
     Complex(STAYING, BECAUSE, Clause(IT, RAIN, PROGRESSIVE), subordinate_first=True)),
    ("I know that Anna bought a blue bicycle.", "Ich weiß, dass Anna ein blaues Fahrrad gekauft hat.",
     Complex(Clause(I, KNOW_THAT, Tense.PRESENT), ("that", "dass"), clause(ANNA, "buy", PAST, BLUE_BICYCLE))),
    ("I know that Paul is older than Anna.", "Ich weiß, dass Paul älter ist als Anna.",
     Complex(Clause(I, KNOW_THAT, Tense.PRESENT), ("that", "dass"), Clause(PAUL, BE, Tense.PRESENT, complement=OLDER))),
    ("He read the poem when we arrived.", "Er hat das Gedicht gelesen, als wir angekommen sind.",
     Complex(clause(HE, "read", PAST, the("poem")), ("when", "als"), clause(WE, "arrive", PAST))),
    ("Anna will help him if he calls.", "Anna wird ihm helfen, wenn er anruft.",
     Complex(clause(ANNA, "help", Tense.FUTURE, HE), ("if", "wenn"), clause(HE, "call", Tense.PRESENT))),
    ("The cat is sleeping, but the bird is not falling asleep.", "Die Katze schläft, aber der Vogel schläft nicht ein.",
     Compound(clause(the("cat"), "sleep", PROGRESSIVE), NOT_SLEEPING, (", but", ", aber"))),
    ("Do you watch television every day?", "Siehst du jeden Tag fern?",
     YesNoQuestion(Clause(YOU, BY_KEY["watch television"], Tense.PRESENT, time=EVERY_DAY))),
    ("Is the doctor who is crying singing?", "Singt der Arzt, der weint?",
     YesNoQuestion(clause(DOCTOR, "sing", PROGRESSIVE))),
    ("Who is helping Paul?", "Wer hilft Paul?", Statement(clause(WHO, "help", PROGRESSIVE, PAUL), "?")),
    ("Who is Paul helping?", "Wem hilft Paul?", WordQuestion(clause(PAUL, "help", PROGRESSIVE, WHO))),
    ("Who did Paul visit?", "Wen hat Paul besucht?", WordQuestion(clause(PAUL, "visit", PAST, WHO))),
    ("Who does the horse belong to?", "Wem gehört das Pferd?",
     WordQuestion(clause(the("horse"), "belong to", Tense.PRESENT, WHO))),
    ("Who is Anna waiting for?", "Auf wen wartet Anna?", WordQuestion(clause(ANNA, "wait for", PROGRESSIVE, WHO))),
    ("What did the student write?", "Was hat der Student geschrieben?",
     WordQuestion(clause(the("student"), "write", PAST, WHAT))),
    ("Where are you going?", "Wohin gehst du?", WordQuestion(clause(YOU, "go", PROGRESSIVE), ("where", "wohin"))),
    ("Where did the dog sleep?", "Wo hat der Hund geschlafen?",
     WordQuestion(clause(the("dog"), "sleep", PAST), ("where", "wo"))),
]  # fmt: skip


@pytest.mark.parametrize(("english", "german", "tree"), SENTENCES, ids=[row[0] for row in SENTENCES])
def test_a_sentence_is_said_as_a_speaker_says_it(english: str, german: str, tree: Sentence) -> None:
    assert tree.english() == english
    assert tree.german() == german


def test_a_sentence_of_two_clauses_names_the_word_pairs_of_both() -> None:
    first, second = clause(the("dog"), "follow", PAST, the("cat")), clause(the("girl"), "cry", PAST)
    pairs = {("subject", "dog", "follow"), ("object", "follow", "cat"), ("subject", "girl", "cry")}
    assert set(Complex(first, BECAUSE, second).combinations()) == pairs
    assert set(Compound(first, second, (" and", " und")).combinations()) == pairs
