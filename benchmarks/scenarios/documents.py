"""Collaborative documents: editors that write Yjs updates; compared with the published server."""

from collections.abc import Generator
from functools import partial

from benchmarks.load.process import Result
from benchmarks.results import HEADWATER
from benchmarks.scenarios.base import Context, Step
from benchmarks.scenarios.editor import edit
from benchmarks.subjects import Subject, headwater, yjs_servers


def steps(context: Context, subject: Subject) -> Generator[Step]:
    """Each step has a new server."""
    if subject.name != HEADWATER:
        return  # the reference server does not support documents
    plan = context.plan
    ours = headwater(context.python, "--documents")
    servers = [ours, *yjs_servers()] if context.compare else [ours]
    first = context.repetition % len(servers)
    for documents in plan.documents_counts:
        for server in [*servers[first:], *servers[:first]]:
            take = partial(_take, context, server, documents)
            yield Step(_variant(context, documents), take, server.name)


def _variant(context: Context, documents: int) -> str:
    plan = context.plan
    edits = f"{plan.editors_per_document} editors × {plan.edits_per_second:.0f} edits/s"
    return f"{documents} documents × {edits}"


def _take(context: Context, subject: Subject, documents: int) -> Result:
    with context.fresh_server(subject) as server:
        return edit(context, server, documents, yjs=True)
