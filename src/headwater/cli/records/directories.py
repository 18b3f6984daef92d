"""Data directories: their files, their backups and their problems."""

from __future__ import annotations

from typing import Annotated as A

from headwater.cli.records.fields import Name, Record, doc


class ProblemRecord(Record):
    """Something wrong in a data directory."""

    where: A[str, doc("the position")]
    what: A[str, doc("the problem")]


class VerifyRecord(Record):
    """The result of a check."""

    ok: A[bool, doc("whether nothing was found")]
    problems: A[list[ProblemRecord], doc("what was found")]


class SegmentRecord(Record):
    """One file of history."""

    id: A[int, doc("its number")]
    name: A[str, doc("its name")]
    bytes: A[int, doc("its size")]
    needed_bytes: A[int, doc("how much of that streams still need")]
    streams: A[int, doc("how many streams have data in it")]
    extents: A[int, doc("how many pieces of streams it holds")]
    created_at: A[str, doc("when it was written")]
    place: A[
        str,
        doc("`here`, `object storage`, `both`, `uploading`, or `going` when nobody needs it"),
    ]


class OrphanRecord(Record):
    """A file in object storage that nobody knows of."""

    name: A[str, doc("its name")]
    removed: A[bool, doc("whether it was removed")]


class CompactRecord(Record):
    """What became of the files that were rewritten."""

    files_before: A[int, doc("how many there were")]
    files_after: A[int, doc("how many replaced them")]
    bytes_before: A[int, doc("their size before")]
    bytes_after: A[int, doc("their size now")]


class MissingRecord(Record):
    """What of a stream could not be restored."""

    name: Name
    bytes: A[int, doc("how many bytes are missing")]
    messages: A[int, doc("how many messages are missing")]
    all: A[bool, doc("whether the whole stream is missing")]


class RestoreRecord(Record):
    """A data directory that was made."""

    path: A[str, doc("where it is")]
    streams: A[int, doc("how many streams there are")]
    bytes: A[int, doc("how much data they have")]
    as_of: A[str, doc("when the restored state was written")]
    missing: A[list[MissingRecord], doc("what is missing from that state")]


class BackupRecord(Record):
    """A backup that was made."""

    path: A[str, doc("where it is")]
    created_at: A[str, doc("the time of the state it holds")]
    bytes: A[int, doc("its size")]
    streams: A[int, doc("how many streams it holds")]
    headwater: A[str, doc("the version that created it")]


class CopyRecord(Record):
    """Everything that was copied."""

    source: A[str, doc("the source, without user and password")]
    target: A[str, doc("the target, without user and password")]
    streams: A[int, doc("how many streams, including deleted ones that are kept")]
    appends: A[int, doc("how many appends they have")]
    bytes: A[int, doc("how large those are")]
    rows: A[dict[str, int], doc("how many rows each table has")]
    digest: A[str, doc("a digest of all rows; the same for the same content")]


class FindingRecord(Record):
    """Something that was looked at."""

    level: A[str, doc("`ok`, `hint` or `problem`")]
    about: A[str, doc("what it is about")]
    what: A[str, doc("what was found")]
    advice: A[str, doc("what to do about it; empty if nothing")]


class DoctorRecord(Record):
    """The result of an examination."""

    ok: A[bool, doc("whether there is no problem")]
    findings: A[list[FindingRecord], doc("what was found")]
