"""HTML pages of one file each: style and script are inside, and their policy lets the browser load nothing.

This folder has the templates (Jinja), which extend layout.html, the stylesheet and the scripts.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


def render_page(template: str, script: str = "", **values: Any) -> str:
    """Fill in a template of this folder with the values that it names, escaped; every one needs "title".

    Raises:
        jinja2.UndefinedError: the template names another value.
    """
    # Here, because few commands write a page, and loading Jinja takes as long as a plain score.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["sha256"] = _sha256
    return environment.get_template(template).render(
        style=(_FOLDER / "style.css").read_text(encoding="utf-8"),
        script=(_FOLDER / script).read_text(encoding="utf-8") if script else "",
        **values,
    )


def _sha256(content: str) -> str:
    """A hash in the form of a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
