"""What the commands do is what record.json says that they did (record.py, which also says how to write it anew)."""

import json
from typing import Any

import pytest
from record.record import FIXTURES, RECORD, differences, portable, record

pytestmark = pytest.mark.processor  # `make test-avx2` runs these as on a processor with AVX2 alone

BEFORE: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def after() -> dict[str, Any]:
    return portable(record())


def test_nothing_is_recorded_that_was_not(after: dict[str, Any]) -> None:
    assert sorted(after) == sorted(BEFORE)


@pytest.mark.parametrize("name", BEFORE)
def test_a_command_does_what_it_did(name: str, after: dict[str, Any]) -> None:
    assert "\n".join(differences(BEFORE[name], after[name])) == ""


def test_the_fixtures_name_no_place_on_a_machine() -> None:
    found = [path for path in FIXTURES.rglob("*") if path.is_file() and any(
        place in path.read_bytes() for place in (b"/tmp/", b"/home/", b"/root/"))]  # fmt: skip
    assert found == []
