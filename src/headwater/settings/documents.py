"""Collaborative documents."""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings

from headwater.core.limits import MIB, TTL_SECONDS_MAX
from headwater.documents.policy import Policy as DocumentPolicy

_DOCUMENTS: Final = DocumentPolicy()


class DocumentSettings(BaseSettings):
    documents: bool = Field(
        False,
        description="Serve collaborative documents (Yjs); needs headwater[documents].",
    )
    documents_prefix: str = Field(
        "/v1/yjs", description="Where documents are: PREFIX/{service}/docs/{path}."
    )
    documents_compact_bytes: int = Field(
        _DOCUMENTS.compact_bytes,
        ge=1,
        description="Compact a document once this much was written after its snapshot.",
    )
    documents_retention_s: int = Field(
        _DOCUMENTS.retention_s,
        ge=0,
        le=TTL_SECONDS_MAX,
        description="When a document is compacted, drop updates older than this; 0 keeps them.",
    )
    documents_workers: int = Field(
        _DOCUMENTS.workers, ge=1, le=64, description="Documents compacted at a time."
    )
    documents_worker_bytes_max: int = Field(
        _DOCUMENTS.worker_memory_bytes,
        ge=256 * MIB,
        description="Memory of a process that compacts a document; a document that needs more is "
        "left as it is.",
    )
    documents_worker_timeout_ms: int = Field(
        int(1000 * _DOCUMENTS.worker_timeout_s),
        ge=100,
        le=3_600_000,
        description="How long such a process may take.",
    )

    def document_policy(self) -> DocumentPolicy | None:
        if not self.documents:
            return None
        return DocumentPolicy(
            self.documents_compact_bytes,
            self.documents_retention_s,
            self.documents_workers,
            self.documents_worker_bytes_max,
            self.documents_worker_timeout_ms / 1000,
        )

    @field_validator("documents_prefix")
    @classmethod
    def _check_prefix(cls, value: str) -> str:
        if re.fullmatch(r"(/[A-Za-z0-9_.~-]+)+", value) and not value.startswith("/v1/stream"):
            return value
        raise ValueError("must be a path such as /v1/yjs, and not one of the server's own")
