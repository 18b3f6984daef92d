"""Large appends on their way into files; see `headwater.store.history.large_appends`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from headwater.core.errors import OutcomeUnknown
from headwater.core.stream import Appended
from headwater.store.history import large_appends
from headwater.store.history.gathering import as_columns
from headwater.store.history.segment_writer import SegmentBuilder, SegmentDraft, Step, nothing
from headwater.store.rows import Query, op_row
from headwater.store.syncing import ensure_directory

ByRun = Mapping[int, Sequence[Appended]]
"""Appends by run."""

# More of them would be written sooner, but there would be more to compact.
FILES_MAX: Final = 2


class Filing:
    """Writes the large appends of each commit, one commit at a time.

    Those of several streams are shared out to two threads, each with a file of its own: copying and
    syncing bodies takes much longer than what needs the interpreter.

    Errors are those of SQLite and of the file system.
    """

    def __init__(
        self, directory: Path, query: Query, new_id: Callable[[], int], step: Step = nothing
    ) -> None:
        self._directory = directory
        self._query = query
        self._new_id = new_id
        self._step = step
        self._helper: ThreadPoolExecutor | None = None

    @contextmanager
    def of(self, appends: Sequence[Appended]) -> Iterator[Sequence[SegmentDraft]]:
        """Around a commit: the files for the large ones of its appends, if there are any.

        The commit has to record them. If that fails, they are removed.
        """
        chosen = large_appends.choose(appends, self.with_rows)
        if not chosen:
            yield ()
            return
        drafts: list[SegmentDraft] = []
        try:
            self._write_all(chosen, drafts)
            yield drafts
        except OutcomeUnknown:
            # They may be recorded.
            raise
        except BaseException:
            for draft in drafts:
                with suppress(OSError):
                    (self._directory / draft.name).unlink(missing_ok=True)
            raise

    def with_rows(self, runs: Collection[int]) -> list[int]:
        """Those of some runs that have rows."""
        values = ",".join(["(?)"] * len(runs))
        found = self._query(
            f"SELECT column1 FROM (VALUES {values}) WHERE EXISTS"
            " (SELECT 1 FROM ops WHERE stream_id = column1)",
            tuple(runs),
        )
        return [row[0] for row in found]

    def _write_all(self, chosen: ByRun, drafts: list[SegmentDraft]) -> None:
        """Write the files, and wait for both of them even if one fails."""
        ensure_directory(self._directory)
        helper = self._ready_helper() if len(chosen) > 1 else None
        shares = large_appends.share_out(chosen, FILES_MAX if helper else 1)
        own, *others = [partial(self._write, self._new_id(), share) for share in shares]
        finishing: list[Callable[[], SegmentDraft]] = [own]
        if helper is not None:
            finishing += [helper.submit(other).result for other in others]
        failure: Exception | None = None
        for finish in finishing:
            try:
                drafts.append(finish())
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _ready_helper(self) -> ThreadPoolExecutor | None:
        """A thread that has begun, so that nothing can be left waiting for it."""
        if self._helper is None:
            helper = ThreadPoolExecutor(FILES_MAX - 1, "headwater-file")
            try:
                helper.submit(int).result()
            except RuntimeError:
                # The system allows no more threads.
                return None
            self._helper = helper
        return self._helper

    def _write(self, segment_id: int, share: ByRun) -> SegmentDraft:
        builder = SegmentBuilder(self._directory, segment_id, self._step)
        try:
            for run, appends in share.items():
                builder.begin(run, appends[0].start, appends[0].first_message)
                for append in appends:
                    builder.add_all(*as_columns([op_row(append)]))
                builder.mark()
            return builder.finish()
        except BaseException:
            builder.abandon()
            raise

    def close(self) -> None:
        if self._helper is not None:
            self._helper.shutdown()
