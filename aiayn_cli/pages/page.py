"""Pages of HTML in one file each: style and script are inside, and their policy lets the browser load nothing.

The templates (Jinja), the stylesheet and the scripts lie in this folder. A template NAME.html extends layout.html; the
script of its page, where it has one, is NAME.js.
"""

import base64
import hashlib
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent


def render_page(template: str, **values: Any) -> str:
    """Fill in a template.

    Args:
        template: a file of this folder.
        values: what the template names; "title" is for all. Texts are escaped.

    Raises:
        jinja2.UndefinedError: the template names something else.
    """
    # Here, because most calls of a command write no page, and Jinja takes as long to load as a plain score.
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
    script = (_FOLDER / template).with_suffix(".js")
    return environment.get_template(template).render(
        style=(_FOLDER / "style.css").read_text(encoding="utf-8"),
        script=script.read_text(encoding="utf-8") if script.is_file() else "",
        **values,
    )


def _sha256(content: str) -> str:
    """A hash as a content security policy has it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"
