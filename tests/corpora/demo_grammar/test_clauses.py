"""Word order, agreement and negation within one clause, against translations written by hand."""

from dataclasses import replace
from typing import Any

import pytest

from aiayn_cli.corpora.demo_grammar.adverbials import Fixed, Prepositional
from aiayn_cli.corpora.demo_grammar.clauses import Clause, Gap, Predicate, Relative
from aiayn_cli.corpora.demo_grammar.conjugation import Modal, Tense
from aiayn_cli.corpora.demo_grammar.determiners import BARE, EVERY, POSSESSIVES, A, Case, of_name
from aiayn_cli.corpora.demo_grammar.lexicon import ADJECTIVES, FOR, NOUNS, ON, WITH, Preposition
from aiayn_cli.corpora.demo_grammar.phrases import HE, SHE, THEY, WE, YOU, Both, I, NounPhrase, Phrase, name
from aiayn_cli.corpora.demo_grammar.sentences import Statement
from aiayn_cli.corpora.demo_grammar.times import at, clock, number, on_date
from aiayn_cli.corpora.demo_grammar.verbs import BE, BY_KEY

PRESENT, PROGRESSIVE, PAST, FUTURE = Tense.PRESENT, Tense.PROGRESSIVE, Tense.PAST, Tense.FUTURE
ANNA, PAUL, FELIX = name("Anna"), name("Paul"), name("Felix")
MY, HER = POSSESSIVES[0], POSSESSIVES[3]
YESTERDAY, TODAY, TOMORROW = Fixed("yesterday", "gestern"), Fixed("today", "heute"), Fixed("tomorrow", "morgen")
OFTEN = Fixed("often", "oft", before_verb=True)
NOUN = {noun.en: noun for noun in NOUNS}
ADJECTIVE = {adjective.en: adjective for adjective in ADJECTIVES}


def the(*words: str, **parts: Any) -> NounPhrase:
    """Build a phrase from its adjectives and its noun."""
    return NounPhrase(NOUN[words[-1]], adjectives=tuple(ADJECTIVE[word] for word in words[:-1]), **parts)


def a(*words: str) -> NounPhrase:
    return the(*words, determiner=A)


def some(*words: str, **parts: Any) -> NounPhrase:
    return the(*words, plural=True, determiner=BARE, **parts)


def clause(subject: Phrase, verb: str, tense: Tense, what: Phrase | None = None, **parts: Any) -> Clause:
    return Clause(subject, BE if verb == "be" else BY_KEY[verb], tense, what, **parts)


def place(en: str, de: str, case: Case, phrase: NounPhrase) -> Prepositional:
    return Prepositional(Preposition(en, de, ()), case, phrase)


def with_relative(phrase: NounPhrase, gap: Gap, inner: Clause) -> NounPhrase:
    return replace(phrase, relative=Relative(inner, gap))


IN_GARDEN = place("in", "in", Case.DAT, the("beautiful", "garden"))
WORKING = clause(the("man"), "work", PROGRESSIVE, place=place("in", "in", Case.DAT, the("kitchen")))
CHILDREN = the("child", plural=True)

# The English sentence, its translation, and the tree that both must come from.
STATEMENTS = [
    ("The man is buying a red apple.", "Der Mann kauft einen roten Apfel.",
     clause(the("man"), "buy", PROGRESSIVE, a("red", "apple"))),
    ("I have an old dog.", "Ich habe einen alten Hund.", clause(I, "have", PRESENT, a("old", "dog"))),
    ("The woman sees small mice.", "Die Frau sieht kleine Mäuse.",
     clause(the("woman"), "see", PRESENT, some("small", "mouse"))),
    ("The teacher helped the young student.", "Der Lehrer hat dem jungen Studenten geholfen.",
     clause(the("teacher"), "help", PAST, the("young", "student"))),
    ("Anna knows the neighbour.", "Anna kennt den Nachbarn.", clause(ANNA, "know", PRESENT, the("neighbour"))),
    ("She will give the boy a book tomorrow.", "Sie wird dem Jungen morgen ein Buch geben.",
     clause(SHE, "give", FUTURE, a("book"), recipient=the("boy"), time=TOMORROW)),
    ("Paul is calling her brother.", "Paul ruft ihren Bruder an.",
     clause(PAUL, "call", PROGRESSIVE, the("brother", determiner=HER))),
    ("Yesterday Paul picked her up.", "Gestern hat Paul sie abgeholt.",
     clause(PAUL, "pick up", PAST, SHE, time=YESTERDAY, time_first=True)),
    ("The key is lying on the table.", "Der Schlüssel liegt auf dem Tisch.",
     clause(the("key"), "lie", PROGRESSIVE, complement=Prepositional(ON, Case.DAT, the("table")))),
    ("I am putting the key on the table.", "Ich lege den Schlüssel auf den Tisch.",
     clause(I, "put", PROGRESSIVE, the("key"), complement=Prepositional(ON, Case.ACC, the("table")))),
    ("The dog was in the beautiful garden.", "Der Hund war im schönen Garten.",
     clause(the("dog"), "be", PAST, complement=IN_GARDEN)),
    ("Paul ran into the house.", "Paul ist ins Haus gelaufen.",
     clause(PAUL, "run", PAST, complement=place("into", "in", Case.ACC, the("house")))),
    ("The man who is working in the kitchen knows Anna.", "Der Mann, der in der Küche arbeitet, kennt Anna.",
     clause(with_relative(the("man"), Gap.SUBJECT, WORKING), "know", PRESENT, ANNA)),
    ("She met the children that Paul helped.", "Sie hat die Kinder getroffen, denen Paul geholfen hat.",
     clause(SHE, "meet", PAST, with_relative(CHILDREN, Gap.OBJECT, clause(PAUL, "help", PAST, CHILDREN)))),
    ("The bus that Anna is waiting for is green.", "Der Bus, auf den Anna wartet, ist grün.",
     clause(with_relative(the("bus"), Gap.OBJECT, clause(ANNA, "wait for", PROGRESSIVE, the("bus"))), "be", PRESENT,
            complement=Predicate(ADJECTIVE["green"]))),
    ("The man does not have an expensive car.", "Der Mann hat kein teures Auto.",
     clause(the("man"), "have", PRESENT, a("expensive", "car"), negated=True)),
    ("I did not forget the coat today.", "Ich habe den Mantel heute nicht vergessen.",
     clause(I, "forget", PAST, the("coat"), time=TODAY, negated=True)),
    ("Anna is not waiting for a train.", "Anna wartet nicht auf einen Zug.",
     clause(ANNA, "wait for", PROGRESSIVE, a("train"), negated=True)),
    ("We do not have to work.", "Wir müssen nicht arbeiten.",
     clause(WE, "work", PRESENT, modal=Modal.MUST, negated=True)),
    ("Tomorrow Anna wants to invite them.", "Morgen will Anna sie einladen.",
     clause(ANNA, "invite", PRESENT, THEY, modal=Modal.WANT, time=TOMORROW, time_first=True)),
    ("He cannot find my key.", "Er kann meinen Schlüssel nicht finden.",
     clause(HE, "find", PRESENT, the("key", determiner=MY), modal=Modal.CAN, negated=True)),
    ("The girl likes to read long books.", "Das Mädchen liest gern lange Bücher.",
     clause(the("girl"), "read", PRESENT, some("long", "book"), modal=Modal.GLADLY)),
    ("You often drink cold milk.", "Du trinkst oft kalte Milch.",
     clause(YOU, "drink", PRESENT, the("cold", "milk", determiner=BARE), time=OFTEN)),
    ("Paul sold three old pictures.", "Paul hat drei alte Bilder verkauft.",
     clause(PAUL, "sell", PAST, some("old", "picture", count=number(3)))),
    ("The train will leave at half past three.", "Der Zug wird um halb vier abfahren.",
     clause(the("train"), "leave", FUTURE, time=at(clock(3, 30)))),
    ("Anna came back from Vienna on 3 May.", "Anna ist am 3. Mai aus Wien zurückgekommen.",
     clause(ANNA, "come back", PAST, complement=Fixed("from Vienna", "aus Wien"), time=on_date(3, 4))),
    ("Felix's young friend thanked Anna and me.", "Felix' junger Freund hat Anna und mir gedankt.",
     clause(the("young", "friend", determiner=of_name("Felix")), "thank", PAST, Both(ANNA, I))),
    ("The table is not older than a chair.", "Der Tisch ist nicht älter als ein Stuhl.",
     clause(the("table"), "be", PRESENT, complement=Predicate(ADJECTIVE["old"], a("chair")), negated=True)),
    ("Paul was younger than Anna.", "Paul war jünger als Anna.",
     clause(PAUL, "be", PAST, complement=Predicate(ADJECTIVE["young"], ANNA))),
    ("Every guest bought a flower for my grandmother.", "Jeder Gast hat eine Blume für meine Großmutter gekauft.",
     clause(the("guest", determiner=EVERY), "buy", PAST, a("flower"),
            complement=Prepositional(FOR, Case.ACC, the("grandmother", determiner=MY)))),
    ("Felix is travelling to Munich with the uncle today.", "Felix fährt heute mit dem Onkel nach München.",
     clause(FELIX, "travel", PROGRESSIVE, complement=Fixed("to Munich", "nach München"),
            company=Prepositional(WITH, Case.DAT, the("uncle")), time=TODAY)),
]  # fmt: skip


@pytest.mark.parametrize(("english", "german", "tree"), STATEMENTS, ids=[row[0] for row in STATEMENTS])
def test_a_clause_is_said_as_a_speaker_says_it(english: str, german: str, tree: Clause) -> None:
    assert Statement(tree).english() == english
    assert Statement(tree).german() == german


def test_a_clause_names_the_word_pairs_that_it_combines() -> None:
    company = Prepositional(WITH, Case.DAT, the("big", "dog"))
    tree = clause(the("girl"), "show", PAST, a("red", "car"), recipient=the("boy"), company=company)
    assert set(tree.combinations()) == {
        ("subject", "girl", "show"),
        ("object", "show", "car"),
        ("object", "show", "boy"),
        ("adjective", "red", "car"),
        ("preposition", "with", "dog"),
        ("adjective", "big", "dog"),
    }


def test_a_relative_clause_and_a_predicate_name_their_word_pairs() -> None:
    bus = with_relative(the("bus"), Gap.OBJECT, clause(ANNA, "follow", PAST, the("bus")))
    tree = clause(bus, "be", PAST, complement=Predicate(ADJECTIVE["old"], the("train")))
    assert set(tree.combinations()) == {
        ("object", "follow", "bus"),
        ("adjective", "old", "bus"),
        ("adjective", "old", "train"),
    }


def test_the_preposition_of_a_place_is_no_word_pair() -> None:
    tree = clause(ANNA, "sing", PAST, place=place("in", "in", Case.DAT, the("park")))
    assert list(tree.combinations()) == []
