"""Segment files that an older version wrote are read as what they are.

`written_by_0_1` has a file that the writer of 0.1 made. It must never be written again.
"""

from __future__ import annotations

from pathlib import Path

from headwater.core.producers import ProducerStamp
from headwater.core.stream import Appended
from headwater.store.history.segment import Segment, SegmentRow

ROOT = "0f524010db754eed4c99028f6f8a6e4d"
FILE = Path(__file__).parent / "written_by_0_1" / f"0000000007-{ROOT}.seg"
JSON_RUN = [
    Appended(3, 0, b'{"n":1},', 0, 1, 1_700_000_000_000),
    Appended(3, 8, b'{"n":2},{"n":3},', 1, 2, 1_700_000_000_500, ProducerStamp("p", 1, 7)),
]
BYTES_RUN = [
    Appended(9, 120, b"caf\xc3\xa9", 4, 1, 1_700_000_001_000, ProducerStamp("é", 0, 0)),
    Appended(9, 125, bytes(range(256)), 5, 1, 1_700_000_001_001),
]


def test_a_segment_of_0_1_is_read() -> None:
    assert FILE.read_bytes()[:8] == b"HWSEG\x00\x00\x01"
    segment = Segment.open(FILE, SegmentRow(7, FILE.name, FILE.stat().st_size, ROOT))
    segment.check_all()
    directory = segment.directory()
    assert [(e.run, e.start, e.end) for e in directory] == [(3, 0, 24), (9, 120, 381)]
    for entry, wanted in zip(directory, (JSON_RUN, BYTES_RUN), strict=True):
        extent = segment.extent(entry.index_offset)
        assert [extent.appended(n) for n in range(extent.header.appends)] == wanted
        assert extent.bodies(entry.start, entry.end) == [append.body for append in wanted]
        frame = extent.frame(entry.start, entry.end, entry.end)
        assert frame.ids is None
        assert frame.data == b"".join(append.body for append in wanted)
