import os
import threading
import time
from pathlib import Path

import pytest
from translation_models import translate_options

from aiayn_cli.translate.session import run_translate


def test_the_speed_is_that_of_translating_and_not_of_typing(model: Path, tmp_path: Path) -> None:
    pipe, waits = tmp_path / "pipe", 0.7
    os.mkfifo(pipe)

    def type_slowly() -> None:
        with pipe.open("wb", buffering=0) as keyboard:
            for line in (b"hund\n", b"katze\n"):
                keyboard.write(line)
                time.sleep(waits)

    typist = threading.Thread(target=type_slowly)
    typist.start()
    result = run_translate(
        translate_options([model], source=str(pipe), path=tmp_path / "out", precision="fp32", device="cpu", max_extra=2)
    )
    typist.join()
    assert result.lines == 2
    assert 0 < result.seconds < waits
    assert result.lines_per_second == pytest.approx(2 / result.seconds)
