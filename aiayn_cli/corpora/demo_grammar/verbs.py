"""Verbs of the built-in corpus: one table in dictionary style, made to be read and extended.

German is written as in a learner's dictionary: infinitive, third person, perfect. A bar follows a separable prefix:
"an|rufen ruft hat angerufen" gives "sie ruft an", "weil sie anruft", "sie hat angerufen", "sie wird anrufen".
"""

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb of both languages with what it may be combined with; the words for kinds of nouns are the lexicon's."""

    key: str  # names it uniquely: "look for", "put on"
    en: str
    en_past: str
    en_ing: str
    particle: str  # "pick up the child", but "pick her up"
    en_preposition: str  # "wait for the bus"
    infinitive: str  # without prefix
    prefix: str  # separable: "an" of anrufen
    er: str  # third person singular, without prefix
    sein: bool  # perfect with sein: ist gegangen
    participle: str
    subjects: tuple[str, ...]  # kinds of nouns
    objects: tuple[str, ...]  # kinds of nouns; empty = intransitive
    dative: bool  # the object's case, instead of the accusative
    de_preposition: str  # "auf den Bus warten"
    recipient: bool  # a person in the dative beside the object: gibt dem Kind einen Apfel
    aspect: str  # see ASPECTS
    goal: tuple[str, ...]  # what completes it: see GOALS
    adds: tuple[str, ...]  # what may be added freely: see ADDITIONS


ASPECTS = {
    "action": "is reading a book, reads a book every day",
    "deed": "is selling a book; not every day",
    "event": "sees a book, saw one; never: is seeing",
    "chance": "found a book, will find one, often finds one; not now",
    "state": "knows somebody, knew somebody; at no special time, and not: must know",
}
# Where something is: "at" a place, "in city", "at home", or a preposition of the lexicon with a piece of furniture or a
# building. Where something goes: "to" a place or person, "to city", "home", "onto" (any preposition of furniture).
# "from city" may be left out.
GOALS = (
    *("at", "in city", "at home", "on", "under", "behind", "next to", "in front of"),
    *("to", "to city", "from city", "home", "onto"),
)
# "at" a place, "with" or without somebody, "for" somebody, "by" train, "manner" (slowly), "hobby" (likes to).
ADDITIONS = ("at", "with", "for", "by", "manner", "hobby")


def _verb(
    en: str,
    de: str,
    subjects: str = "person",
    objects: str = "",
    governs: str = "acc",
    aspect: str = "action",
    goal: str = "",
    adds: str = "",
) -> Verb:
    """Read one line of the table.

    Args:
        en: "base past [-ing form where the spelling rules fail]"; a particle follows "+", a preposition "=".
        de: "infinitive er-form hat|ist participle".
        governs: "acc", "dat", "dat acc" (two objects), or a preposition and its case: "auf acc".
        subjects, objects, adds: blank-separated.
        goal: comma-separated.
        aspect: one of `ASPECTS`.
    """
    rest, _, preposition = en.partition(" = ")
    rest, _, particle = rest.partition(" + ")
    base, past, *ing = rest.split()
    infinitive, er, auxiliary, participle = de.split()
    prefix, bar, stem = infinitive.partition("|")
    return Verb(
        key=" ".join(part for part in (base, particle, preposition) if part),
        en=base,
        en_past=past,
        en_ing=ing[0] if ing else (base[:-1] if base.endswith("e") and not base.endswith("ee") else base) + "ing",
        particle=particle,
        en_preposition=preposition,
        infinitive=stem if bar else infinitive,
        prefix=prefix if bar else "",
        er=er,
        sein=auxiliary == "ist",
        participle=participle,
        subjects=tuple(subjects.split()),
        objects=tuple(objects.split()),
        dative=governs.endswith("dat"),
        de_preposition=governs.partition(" ")[0] if " " in governs and governs != "dat acc" else "",
        recipient=governs == "dat acc",
        aspect=aspect,
        goal=tuple(goal.split(", ")) if goal else (),
        adds=tuple(adds.split()),
    )


_LIVING = "person animal"
_GOODS = "thing device clothes vehicle"

VERBS = (
    # with an accusative object
    _verb(
        "see saw", "sehen sieht hat gesehen", _LIVING, "person animal vehicle transport building area", aspect="event"
    ),
    _verb("hear heard", "hören hört hat gehört", _LIVING, "person animal vehicle transport", aspect="event"),
    _verb("find found", "finden findet hat gefunden", objects="animal thing clothes text", aspect="chance", adds="at"),
    _verb("buy bought", "kaufen kauft hat gekauft", objects="snack dish text press furniture " + _GOODS, adds="at for"),
    _verb("sell sold", "verkaufen verkauft hat verkauft", objects="furniture animal " + _GOODS, aspect="deed"),
    _verb("read read", "lesen liest hat gelesen", objects="text press", adds="at manner hobby"),
    _verb("write wrote", "schreiben schreibt hat geschrieben", objects="text", adds="at for manner hobby"),
    _verb("eat ate", "essen isst hat gegessen", objects="snack dish", adds="at manner hobby"),
    _verb("drink drank", "trinken trinkt hat getrunken", objects="drink", adds="at manner hobby"),
    _verb("cook cooked", "kochen kocht hat gekocht", objects="dish", adds="at for"),
    _verb("look looked = for", "suchen sucht hat gesucht", objects="person animal thing clothes", adds="at"),
    _verb("need needed", "brauchen braucht hat gebraucht", objects="furniture " + _GOODS, aspect="event"),
    _verb("love loved", "lieben liebt hat geliebt", objects=_LIVING, aspect="state"),
    _verb("know knew", "kennen kennt hat gekannt", objects="person", aspect="state"),
    _verb("have had", "haben hat hat gehabt", objects="animal " + _GOODS, aspect="state"),
    _verb("visit visited", "besuchen besucht hat besucht", objects="person building area", adds="hobby"),
    _verb("meet met", "treffen trifft hat getroffen", objects="person", adds="at"),
    _verb(
        "repair repaired", "reparieren repariert hat repariert", objects="device vehicle transport furniture opening"
    ),
    _verb("carry carried", "tragen trägt hat getragen", objects="thing device furniture"),
    _verb("wash washed", "waschen wäscht hat gewaschen", objects="clothes vehicle transport opening"),
    _verb("draw drew", "zeichnen zeichnet hat gezeichnet", objects="person animal transport building", adds="hobby"),
    _verb("lose lost", "verlieren verliert hat verloren", objects="thing clothes", aspect="chance", adds="at"),
    _verb("forget forgot", "vergessen vergisst hat vergessen", objects="thing clothes text", aspect="chance"),
    # separable, with an accusative object
    _verb("call called", "an|rufen ruft hat angerufen", objects="person"),
    _verb("invite invited", "ein|laden lädt hat eingeladen", objects="person"),
    _verb("pick picked + up", "ab|holen holt hat abgeholt", objects="person"),
    _verb("open opened", "auf|machen macht hat aufgemacht", objects="opening"),
    _verb("close closed", "zu|machen macht hat zugemacht", objects="opening"),
    _verb("throw threw + away", "weg|werfen wirft hat weggeworfen", objects="thing clothes text press", aspect="deed"),
    _verb("put put putting + on", "an|ziehen zieht hat angezogen", objects="clothes"),
    _verb("bring brought + along", "mit|bringen bringt hat mitgebracht", objects="snack thing text"),
    _verb("turn turned + on", "an|machen macht hat angemacht", objects="device"),
    _verb("turn turned + off", "aus|machen macht hat ausgemacht", objects="device"),
    # separable, without object
    _verb("get got getting + up", "auf|stehen steht ist aufgestanden"),
    _verb("wake woke + up", "auf|wachen wacht ist aufgewacht", _LIVING),
    _verb("fall fell + asleep", "ein|schlafen schläft ist eingeschlafen", _LIVING, adds="at"),
    _verb("arrive arrived", "an|kommen kommt ist angekommen", "person transport"),
    _verb("leave left", "ab|fahren fährt ist abgefahren", "transport"),
    _verb("go went + shopping", "ein|kaufen kauft hat eingekauft", adds="with"),
    _verb("watch watched + television", "fern|sehen sieht hat ferngesehen", adds="with hobby"),
    _verb("come came + back", "zurück|kommen kommt ist zurückgekommen", goal="from city"),
    # with a dative object
    _verb("help helped", "helfen hilft hat geholfen", objects="person", governs="dat", adds="at hobby"),
    _verb("thank thanked", "danken dankt hat gedankt", objects="person", governs="dat"),
    _verb("follow followed", "folgen folgt ist gefolgt", "person animal vehicle", "person animal transport", "dat"),
    _verb("answer answered", "antworten antwortet hat geantwortet", objects="person", governs="dat"),
    _verb("trust trusted", "vertrauen vertraut hat vertraut", _LIVING, "person", "dat", "state"),
    _verb("congratulate congratulated", "gratulieren gratuliert hat gratuliert", objects="person", governs="dat"),
    _verb("listen listened = to", "zu|hören hört hat zugehört", objects="person", governs="dat", adds="hobby"),
    _verb("belong belonged = to", "gehören gehört hat gehört", "animal text " + _GOODS, "person", "dat", "state"),
    # with a dative and an accusative object
    _verb("give gave", "geben gibt hat gegeben", objects="snack thing text press", governs="dat acc"),
    _verb("show showed", "zeigen zeigt hat gezeigt", objects="text " + _GOODS, governs="dat acc"),
    _verb("send sent", "schicken schickt hat geschickt", objects="thing text clothes", governs="dat acc"),
    _verb("lend lent", "leihen leiht hat geliehen", objects="thing device vehicle text", governs="dat acc"),
    # with a prepositional object
    _verb("wait waited = for", "warten wartet hat gewartet", _LIVING, "person transport", "auf acc", adds="at"),
    _verb("think thought = of", "denken denkt hat gedacht", "person", "person animal area", "an acc"),
    _verb("laugh laughed = at", "lachen lacht hat gelacht", "person", "person animal clothes", "über acc"),
    _verb("talk talked = to", "sprechen spricht hat gesprochen", "person", _LIVING, "mit dat", adds="at hobby"),
    _verb("dream dreamed = of", "träumen träumt hat geträumt", "person", "person animal vehicle area", "von dat"),
    # without object
    _verb("sleep slept", "schlafen schläft hat geschlafen", _LIVING, adds="at"),
    _verb("work worked", "arbeiten arbeitet hat gearbeitet", adds="at with manner hobby"),
    _verb("cry cried", "weinen weint hat geweint", adds="at"),
    _verb("dance danced", "tanzen tanzt hat getanzt", adds="at with manner hobby"),
    _verb("sing sang", "singen singt hat gesungen", adds="at with hobby"),
    _verb("swim swam swimming", "schwimmen schwimmt ist geschwommen", _LIVING, adds="with manner hobby"),
    _verb("play played", "spielen spielt hat gespielt", _LIVING, adds="at with hobby"),
    # completed by a place, a direction or a spot
    _verb("live lived", "wohnen wohnt hat gewohnt", aspect="state", goal="at, in city"),
    _verb("stay stayed", "bleiben bleibt ist geblieben", _LIVING, goal="at, at home"),
    _verb("go went", "gehen geht ist gegangen", goal="to, home", adds="with hobby"),
    _verb("run ran running", "laufen läuft ist gelaufen", _LIVING, goal="to, home", adds="manner"),
    _verb("travel travelled travelling", "fahren fährt ist gefahren", goal="to city", adds="with by hobby"),
    _verb("lie lay lying", "liegen liegt hat gelegen", "thing clothes text press", goal="on, under, next to"),
    _verb("stand stood", "stehen steht hat gestanden", "person vehicle transport", goal="behind, next to, in front of"),
    _verb("sit sat sitting", "sitzen sitzt hat gesessen", _LIVING, goal="on, under, next to, behind"),
    _verb("put put putting", "legen legt hat gelegt", objects="thing clothes text press", goal="onto"),
)
BY_KEY = {verb.key: verb for verb in VERBS}

# Verbs with sentences and frames of their own (toy_sampling).
BE = _verb("be was", "sein ist ist gewesen", aspect="state")
RAIN = _verb("rain rained", "regnen regnet hat geregnet")
SNOW = _verb("snow snowed", "schneien schneit hat geschneit")
COST = _verb("cost cost", "kosten kostet hat gekostet", "thing clothes snack press", aspect="state")
SAY = _verb("say said", "sagen sagt hat gesagt", aspect="state")
BELIEVE = _verb("believe believed", "glauben glaubt hat geglaubt", aspect="state")
KNOW_THAT = _verb("know knew", "wissen weiß hat gewusst", aspect="state")
HOPE = _verb("hope hoped", "hoffen hofft hat gehofft", aspect="state")
ASK = _verb("ask asked", "fragen fragt hat gefragt", aspect="state")
