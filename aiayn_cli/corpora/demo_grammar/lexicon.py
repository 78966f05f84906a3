"""Nouns, adjectives, names, places and adverbs of the built-in corpus: plain tables, made to be read and extended.

To add a word, add a line at the end of its table. A `kind` is a word of meaning by which verbs, adjectives and
prepositions choose their nouns; any new kind works as soon as some verb in verbs.py names it.
Entries compare by identity, so each word exists once.
"""

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun of both languages; English in British spelling."""

    en: str
    gender: str  # "m", "f" or "n"
    de: str
    de_plural: str  # nominative; "" for what cannot be counted
    kind: str
    en_plural: str = ""  # only where the spelling rules fail
    oblique: str = ""  # accusative and dative singular of the n-declension (der Junge, den Jungen)
    family: bool = False  # "my mother" rather than "a mother"
    single: bool = False  # one has but one: "my mother", here never in the plural
    owned: bool = True  # "my car", but not "my station"


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective of both languages; without comparative if `en_comparative` is empty."""

    en: str
    en_comparative: str
    de: str  # as a predicate: das Auto ist teuer
    de_comparative: str
    kinds: tuple[str, ...]  # kinds of nouns that it may describe
    stem: str = ""  # before endings where it differs: das teure Auto
    never: tuple[str, ...] = ()  # nouns of these kinds that it does not suit


@dataclass(frozen=True, eq=False)
class Place:
    """How one is at a place and goes to it. Being there takes the dative."""

    noun: str  # English, as in NOUNS
    en_at: str
    de_at: str
    en_to: str
    de_to: str
    to_dative: bool = False  # zum Bahnhof; else the accusative of a two-way preposition: ins Kino


@dataclass(frozen=True, eq=False)
class Preposition:
    """A preposition with the kinds of nouns that it takes here."""

    en: str
    de: str
    kinds: tuple[str, ...]


def _kinds(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOUNS = (
    Noun("man", "m", "Mann", "Männer", "person", en_plural="men", owned=False),
    Noun("woman", "f", "Frau", "Frauen", "person", en_plural="women", owned=False),
    Noun("child", "n", "Kind", "Kinder", "person", en_plural="children"),
    Noun("boy", "m", "Junge", "Jungen", "person", oblique="Jungen", owned=False),
    Noun("girl", "n", "Mädchen", "Mädchen", "person", owned=False),
    Noun("teacher", "m", "Lehrer", "Lehrer", "person"),
    Noun("doctor", "m", "Arzt", "Ärzte", "person"),
    Noun("neighbour", "m", "Nachbar", "Nachbarn", "person", oblique="Nachbarn"),
    Noun("friend", "m", "Freund", "Freunde", "person"),
    Noun("student", "m", "Student", "Studenten", "person", oblique="Studenten"),
    Noun("guest", "m", "Gast", "Gäste", "person"),
    Noun("mother", "f", "Mutter", "Mütter", "person", family=True, single=True),
    Noun("father", "m", "Vater", "Väter", "person", family=True, single=True),
    Noun("sister", "f", "Schwester", "Schwestern", "person", family=True),
    Noun("brother", "m", "Bruder", "Brüder", "person", family=True),
    Noun("daughter", "f", "Tochter", "Töchter", "person", family=True),
    Noun("son", "m", "Sohn", "Söhne", "person", family=True),
    Noun("grandmother", "f", "Großmutter", "Großmütter", "person", family=True, single=True),
    Noun("uncle", "m", "Onkel", "Onkel", "person", family=True),
    Noun("dog", "m", "Hund", "Hunde", "animal"),
    Noun("cat", "f", "Katze", "Katzen", "animal"),
    Noun("horse", "n", "Pferd", "Pferde", "animal"),
    Noun("bird", "m", "Vogel", "Vögel", "animal"),
    Noun("mouse", "f", "Maus", "Mäuse", "animal", en_plural="mice"),
    Noun("apple", "m", "Apfel", "Äpfel", "snack"),
    Noun("pear", "f", "Birne", "Birnen", "snack"),
    Noun("cake", "m", "Kuchen", "Kuchen", "snack"),
    Noun("egg", "n", "Ei", "Eier", "dish"),
    Noun("soup", "f", "Suppe", "Suppen", "dish"),
    Noun("potato", "f", "Kartoffel", "Kartoffeln", "dish", en_plural="potatoes"),
    Noun("coffee", "m", "Kaffee", "", "drink"),
    Noun("tea", "m", "Tee", "", "drink"),
    Noun("milk", "f", "Milch", "", "drink"),
    Noun("water", "n", "Wasser", "", "drink"),
    Noun("juice", "m", "Saft", "", "drink"),
    Noun("book", "n", "Buch", "Bücher", "text"),
    Noun("letter", "m", "Brief", "Briefe", "text"),
    Noun("poem", "n", "Gedicht", "Gedichte", "text"),
    Noun("newspaper", "f", "Zeitung", "Zeitungen", "press"),
    Noun("coat", "m", "Mantel", "Mäntel", "clothes"),
    Noun("hat", "m", "Hut", "Hüte", "clothes"),
    Noun("shirt", "n", "Hemd", "Hemden", "clothes"),
    Noun("dress", "n", "Kleid", "Kleider", "clothes"),
    Noun("key", "m", "Schlüssel", "Schlüssel", "thing"),
    Noun("bag", "f", "Tasche", "Taschen", "thing"),
    Noun("cup", "f", "Tasse", "Tassen", "thing"),
    Noun("ball", "m", "Ball", "Bälle", "thing"),
    Noun("flower", "f", "Blume", "Blumen", "thing"),
    Noun("picture", "n", "Bild", "Bilder", "thing"),
    Noun("umbrella", "m", "Regenschirm", "Regenschirme", "thing"),
    Noun("present", "n", "Geschenk", "Geschenke", "thing"),
    Noun("lamp", "f", "Lampe", "Lampen", "device"),
    Noun("radio", "n", "Radio", "Radios", "device"),
    Noun("computer", "m", "Computer", "Computer", "device"),
    Noun("car", "n", "Auto", "Autos", "vehicle"),
    Noun("bus", "m", "Bus", "Busse", "transport", owned=False),
    Noun("train", "m", "Zug", "Züge", "transport", owned=False),
    Noun("bicycle", "n", "Fahrrad", "Fahrräder", "vehicle"),
    Noun("table", "m", "Tisch", "Tische", "furniture"),
    Noun("chair", "m", "Stuhl", "Stühle", "furniture"),
    Noun("bed", "n", "Bett", "Betten", "furniture"),
    Noun("door", "f", "Tür", "Türen", "opening"),
    Noun("window", "n", "Fenster", "Fenster", "opening"),
    Noun("kitchen", "f", "Küche", "Küchen", "room"),
    Noun("garden", "m", "Garten", "Gärten", "room"),
    Noun("office", "n", "Büro", "Büros", "room"),
    Noun("house", "n", "Haus", "Häuser", "building"),
    Noun("school", "f", "Schule", "Schulen", "building"),
    Noun("museum", "n", "Museum", "Museen", "building", owned=False),
    Noun("church", "f", "Kirche", "Kirchen", "building", owned=False),
    Noun("library", "f", "Bibliothek", "Bibliotheken", "building", owned=False),
    Noun("restaurant", "n", "Restaurant", "Restaurants", "building", owned=False),
    Noun("cinema", "n", "Kino", "Kinos", "building", owned=False),
    Noun("station", "m", "Bahnhof", "Bahnhöfe", "building", owned=False),
    Noun("park", "m", "Park", "Parks", "area", owned=False),
    Noun("market", "m", "Markt", "Märkte", "area", owned=False),
    Noun("village", "n", "Dorf", "Dörfer", "area"),
    Noun("bridge", "f", "Brücke", "Brücken", "area", owned=False),
)

_GOODS = "thing device clothes vehicle"
_ANYTHING = "transport furniture building area room opening text " + _GOODS
_YOUNG = ("child", "boy", "girl")
_COLOURED = _kinds("thing clothes vehicle transport furniture opening")

# Of two adjectives on one noun, the first comes from `OPINIONS_AND_SIZES`, the second from `AGES_AND_COLOURS`.
ADJECTIVES = (
    Adjective("beautiful", "more beautiful", "schön", "schöner", _kinds("animal " + _ANYTHING)),
    Adjective("big", "bigger", "groß", "größer", _kinds("animal dish snack " + _ANYTHING)),
    Adjective("small", "smaller", "klein", "kleiner", _kinds("animal dish snack " + _ANYTHING)),
    Adjective("old", "older", "alt", "älter", _kinds("person animal press " + _ANYTHING), never=_YOUNG),
    Adjective("young", "younger", "jung", "jünger", _kinds("person animal"), never=_YOUNG),
    Adjective("new", "newer", "neu", "neuer", _kinds(_ANYTHING)),
    Adjective("red", "", "rot", "", _COLOURED),
    Adjective("blue", "", "blau", "", _COLOURED),
    Adjective("green", "", "grün", "", _COLOURED),
    Adjective("black", "", "schwarz", "", _kinds("animal thing clothes vehicle transport furniture")),
    Adjective("white", "", "weiß", "", _kinds("animal thing clothes vehicle transport opening")),
    Adjective("expensive", "more expensive", "teuer", "teurer", _kinds("furniture " + _GOODS), stem="teur"),
    Adjective("cheap", "cheaper", "billig", "billiger", _kinds("furniture " + _GOODS)),
    Adjective("heavy", "heavier", "schwer", "schwerer", _kinds("thing device furniture opening")),
    Adjective("friendly", "friendlier", "freundlich", "freundlicher", _kinds("person animal")),
    Adjective("tired", "", "müde", "", _kinds("person animal"), stem="müd"),
    Adjective("hungry", "hungrier", "hungrig", "hungriger", _kinds("person animal")),
    Adjective("clever", "cleverer", "klug", "klüger", _kinds("person animal")),
    Adjective("happy", "happier", "glücklich", "glücklicher", _kinds("person")),
    Adjective("sad", "sadder", "traurig", "trauriger", _kinds("person text")),
    Adjective("famous", "more famous", "berühmt", "berühmter", _kinds("person text building area")),
    Adjective("hot", "hotter", "heiß", "heißer", _kinds("dish drink")),
    Adjective("cold", "colder", "kalt", "kälter", _kinds("dish drink")),
    Adjective("fresh", "fresher", "frisch", "frischer", _kinds("dish drink snack")),
    Adjective("long", "longer", "lang", "länger", _kinds("text clothes")),
    Adjective("interesting", "more interesting", "interessant", "interessanter", _kinds("text press building")),
    Adjective("dark", "darker", "dunkel", "dunkler", _kinds("room building clothes"), stem="dunkl"),
    Adjective("dirty", "dirtier", "schmutzig", "schmutziger", _kinds("clothes vehicle transport opening")),
)
OPINIONS_AND_SIZES = ("beautiful", "big", "small", "expensive", "friendly", "clever", "heavy")
AGES_AND_COLOURS = ("old", "young", "new", "red", "blue", "green", "black", "white")
# Of these, one thing is only one: "the old bridge is new" is not said.
CONTRASTS = (
    ("old", "young", "new"),
    ("big", "small"),
    ("red", "blue", "green", "black", "white"),
    ("expensive", "cheap"),
    ("happy", "sad"),
    ("hot", "cold"),
)
# States that pass, so that "yesterday" or "often" goes with them.
PASSING = ("friendly", "tired", "hungry", "happy", "sad", "hot", "cold", "dirty")

# Spelt alike in both languages; those ending in s, x or z take only an apostrophe in the German genitive.
NAMES = (
    *("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hannah", "Jonas", "Julia"),
    *("Karl", "Laura", "Leo", "Maria", "Martin", "Nina", "Oskar", "Paul", "Sarah", "Thomas"),
)

CITIES = (
    ("Berlin", "Berlin"),
    ("Hamburg", "Hamburg"),
    ("Leipzig", "Leipzig"),
    ("Munich", "München"),
    ("Cologne", "Köln"),
    ("Vienna", "Wien"),
    ("Zurich", "Zürich"),
    ("Prague", "Prag"),
)

PLACES = (
    Place("kitchen", "in", "in", "into", "in"),
    Place("garden", "in", "in", "into", "in"),
    Place("office", "in", "in", "to", "in"),
    Place("house", "in", "in", "into", "in"),
    Place("school", "at", "in", "to", "in"),
    Place("museum", "in", "in", "to", "in"),
    Place("church", "in", "in", "to", "in"),
    Place("library", "in", "in", "to", "in"),
    Place("restaurant", "in", "in", "to", "in"),
    Place("cinema", "in", "in", "to", "in"),
    Place("station", "at", "an", "to", "zu", to_dative=True),
    Place("park", "in", "in", "to", "in"),
    Place("market", "at", "auf", "to", "auf"),
    Place("village", "in", "in", "to", "in"),
    Place("bridge", "on", "auf", "to", "zu", to_dative=True),
)

# Two-way prepositions: dative where something is, accusative where it is put.
ON = Preposition("on", "auf", ("furniture",))
UNDER = Preposition("under", "unter", ("furniture",))
BEHIND = Preposition("behind", "hinter", ("furniture", "building", "opening"))
NEXT_TO = Preposition("next to", "neben", ("furniture", "building", "opening"))
IN_FRONT_OF = Preposition("in front of", "vor", ("furniture", "building", "opening"))
# With one case only: mit + dative, ohne and für + accusative.
WITH = Preposition("with", "mit", ("person", "animal"))
WITHOUT = Preposition("without", "ohne", ("person", "clothes", "thing"))
FOR = Preposition("for", "für", ("person",))
PREPOSITIONS = (ON, UNDER, BEHIND, NEXT_TO, IN_FRONT_OF, WITH, WITHOUT, FOR)

BY_VEHICLE = (
    ("by car", "mit dem Auto"),
    ("by bus", "mit dem Bus"),
    ("by train", "mit dem Zug"),
    ("by bicycle", "mit dem Fahrrad"),
)

MANNERS = (("quickly", "schnell"), ("slowly", "langsam"), ("quietly", "leise"))
