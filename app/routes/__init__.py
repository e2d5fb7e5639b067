"""Every router, in the order in which the document lists them."""

from __future__ import annotations

from fastapi import APIRouter

from app.routes import batches, health, maintenance, offsets, producers, records, topics

ROUTERS: tuple[APIRouter, ...] = (
    topics.router,
    records.router,
    batches.router,
    offsets.router,
    maintenance.router,
    producers.router,
    health.router,
)
