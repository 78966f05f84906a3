"""Archives as corpora come in, and text as in WMT's test sets."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterable, Mapping

TAR_MODES = {".tgz": "w:gz", ".tar.gz": "w:gz", ".tar.xz": "w:xz", ".tar.bz2": "w:bz2", ".tar": "w:"}


def pack(file: str, members: Mapping[str, bytes]) -> bytes:
    """Make an archive of the kind that the name says; members that end with a slash are folders."""
    body = io.BytesIO()
    mode = next((mode for suffix, mode in TAR_MODES.items() if file.endswith(suffix)), "")
    if file.endswith(".zip"):
        with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    elif mode:
        with tarfile.open(fileobj=body, mode=mode) as tar:  # type: ignore[call-overload]
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size, info.type = len(content), tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
                tar.addfile(info, io.BytesIO(content))
    else:
        (content,) = members.values()
        return gzip.compress(content)
    return body.getvalue()


def sgml(records: Iterable[str], kind: str) -> bytes:
    segments = "".join(f'<seg id="{i}"> {record} </seg>\n' for i, record in enumerate(records, start=1))
    head = f'<{kind} setid="test" srclang="any">\n<doc docid="d" genre="news" origlang="en">\n'
    return f"{head}<p>\n{segments}</p>\n</doc>\n</{kind}>\n".encode()
