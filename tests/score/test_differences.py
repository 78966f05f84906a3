from hypothesis import given, settings
from hypothesis import strategies as st

from aiayn_cli.score.result import Fragment, differences


def test_words_that_only_one_side_has_are_found() -> None:
    assert differences("Der Hund läuft.", "Der Hund rennt.") == (
        [Fragment("Der Hund "), Fragment("läuft", is_shared=False), Fragment(".")],
        [Fragment("Der Hund "), Fragment("rennt", is_shared=False), Fragment(".")],
    )


def test_chinese_is_compared_by_character() -> None:
    ours, theirs = differences("我喜欢绿茶", "我喜欢红茶")
    assert [piece.text for piece in ours if not piece.is_shared] == ["绿"]
    assert [piece.text for piece in theirs if not piece.is_shared] == ["红"]


@given(st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=30)
def test_pieces_joined_give_both_texts_and_share_what_is_the_same(reference: str, hypothesis: str) -> None:
    ours, theirs = differences(reference, hypothesis)
    assert "".join(piece.text for piece in ours) == reference
    assert "".join(piece.text for piece in theirs) == hypothesis
    assert [piece for piece in ours if piece.is_shared] == [piece for piece in theirs if piece.is_shared]
    if reference == hypothesis:
        assert all(piece.is_shared for piece in ours)
