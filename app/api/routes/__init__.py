"""Every router, in the order in which the document lists them."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.routes.batches import router as batches
from app.api.routes.directories import router as directories
from app.api.routes.fetch import router as fetch
from app.api.routes.groups import router as groups
from app.api.routes.health import router as health
from app.api.routes.ingest import router as ingest
from app.api.routes.ingest_hec import router as ingest_hec
from app.api.routes.ingest_profiles import router as ingest_profiles
from app.api.routes.ingest_senders import router as ingest_senders
from app.api.routes.maintenance import router as maintenance
from app.api.routes.offsets import router as offsets
from app.api.routes.producers import router as producers
from app.api.routes.records import router as records
from app.api.routes.segments import router as segments
from app.api.routes.service import router as service
from app.api.routes.splits import router as splits
from app.api.routes.tail import router as tail
from app.api.routes.topics import router as topics

ROUTERS: tuple[APIRouter, ...] = (
    topics,
    records,
    batches,
    ingest,
    ingest_senders,
    ingest_hec,
    ingest_profiles,
    fetch,
    tail,
    offsets,
    splits,
    segments,
    maintenance,
    directories,
    producers,
    groups,
    service,
    health,
)
