"""Trees of all shapes and names for property tests, and the forms that they are written in."""

from itertools import product

from hypothesis import strategies as st

from aiayn_cli.parsing.tree_text import from_text, reduce_tree
from aiayn_cli.recipe_keys import TextConfig

NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=" \t\n\r\v\f\x1f()"), min_size=1, max_size=6
)
LABELS = st.one_of(st.sampled_from(["S", "NP", "NP-SBJ", "VP=2", "TOP", "-"]), NAMES)
LEAVES = st.builds("({} {})".format, st.one_of(st.sampled_from(["NN", "VB", "-LRB-"]), NAMES), NAMES)
TREES = st.recursive(
    LEAVES, lambda inside: st.builds("({} {})".format, LABELS, st.lists(inside, min_size=1, max_size=3).map(" ".join))
).map(lambda text: reduce_tree(from_text(text), functions=True))
FORMS = [
    TextConfig(trees=True, tree_tags=tags, tree_words=written) for tags, written in product((True, False), repeat=2)
]
BOTH, TAGS, WORDS, BARE = FORMS
