"""Every router, in the order in which the document lists them."""

from __future__ import annotations

from fastapi import APIRouter

from app.routes.batches import router as batches
from app.routes.directories import router as directories
from app.routes.fetch import router as fetch
from app.routes.groups import router as groups
from app.routes.health import router as health
from app.routes.maintenance import router as maintenance
from app.routes.offsets import router as offsets
from app.routes.producers import router as producers
from app.routes.records import router as records
from app.routes.segments import router as segments
from app.routes.splits import router as splits
from app.routes.tail import router as tail
from app.routes.topics import router as topics

ROUTERS: tuple[APIRouter, ...] = (
    topics,
    records,
    batches,
    fetch,
    tail,
    offsets,
    splits,
    segments,
    maintenance,
    directories,
    producers,
    groups,
    health,
)
