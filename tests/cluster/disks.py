"""A disk that can really be full: a file system in memory, which shrinks to what is on it.

Only who may mount can have one (root, in most containers too). Elsewhere there is none.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

BYTES: Final = 512 << 20
_ROOM: Final = f"size={BYTES}"
_LOOKS_MAX: Final = 100


class Disk:
    def __init__(self, place: Path, owner: pwd.struct_passwd | None = None) -> None:
        self.place = place
        place.mkdir()
        whose = f",uid={owner.pw_uid},gid={owner.pw_gid}" if owner else ""
        _mount("-t", "tmpfs", "-o", f"{_ROOM},mode=700{whose}", "headwater-disk", str(place))

    def fill(self) -> None:
        """From now on nothing on it can grow."""
        for _ in range(_LOOKS_MAX):
            # What was written since the look would not fit: then look again.
            with suppress(subprocess.CalledProcessError):
                return self._remount(f"size={self._used()}")
        return self._remount(f"size={self._used()}")

    def _used(self) -> int:
        found = os.statvfs(self.place)
        # None at all would be without a limit.
        return max(1, found.f_blocks - found.f_bfree) * found.f_frsize

    def make_room(self) -> None:
        self._remount(_ROOM)

    def _remount(self, size: str) -> None:
        _mount("-o", f"remount,{size}", str(self.place))

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.place)], check=True, capture_output=True)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def can_have_disks() -> bool:
    """Found out by having one."""
    with tempfile.TemporaryDirectory(prefix="headwater-disk-") as directory:
        try:
            Disk(Path(directory) / "disk").close()
        except (OSError, subprocess.CalledProcessError):
            return False
    return True
