from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn_cli.score.result import differences


def test_words_that_only_one_side_has_are_found() -> None:
    assert differences("Der Hund läuft.", "Der Hund rennt.") == (
        [("Der Hund ", True), ("läuft", False), (".", True)],
        [("Der Hund ", True), ("rennt", False), (".", True)],
    )


def test_chinese_is_compared_by_character() -> None:
    ours, theirs = differences("我喜欢绿茶", "我喜欢红茶")
    assert [text for text, is_shared in ours if not is_shared] == ["绿"]
    assert [text for text, is_shared in theirs if not is_shared] == ["红"]


@given(st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=30)
def test_pieces_joined_give_both_texts_and_share_what_is_the_same(reference: str, hypothesis: str) -> None:
    ours, theirs = differences(reference, hypothesis)
    assert "".join(text for text, _ in ours) == reference
    assert "".join(text for text, _ in theirs) == hypothesis
    assert [piece for piece in ours if piece[1]] == [piece for piece in theirs if piece[1]]
    if reference == hypothesis:
        assert all(is_shared for _, is_shared in ours)
