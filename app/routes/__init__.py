"""Every router, in the order in which the document lists them."""

from __future__ import annotations

from fastapi import APIRouter

from app.routes.batches import router as batches
from app.routes.health import router as health
from app.routes.maintenance import router as maintenance
from app.routes.offsets import router as offsets
from app.routes.producers import router as producers
from app.routes.records import router as records
from app.routes.topics import router as topics

ROUTERS: tuple[APIRouter, ...] = (
    topics,
    records,
    batches,
    offsets,
    maintenance,
    producers,
    health,
)
