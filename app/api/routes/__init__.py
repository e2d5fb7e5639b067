"""Every router, in the order in which the document lists them."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.routes.groups import lags_router as group_lags_router
from app.api.routes.groups import router as groups_router
from app.api.routes.ingest import (
    ingest_hec_router,
    ingest_profiles_router,
    ingest_router,
)
from app.api.routes.logs import (
    maintenance_router,
    offsets_router,
    producers_router,
    segments_router,
)
from app.api.routes.records import batches_router, fetch_router, records_router, tail_router
from app.api.routes.service import directories_router, service_router
from app.api.routes.subscriptions import router as subscriptions_router
from app.api.routes.topics import router as topics_router

ROUTERS: tuple[APIRouter, ...] = (
    topics_router,
    records_router,
    batches_router,
    ingest_router,
    ingest_hec_router,
    ingest_profiles_router,
    fetch_router,
    tail_router,
    offsets_router,
    segments_router,
    maintenance_router,
    directories_router,
    producers_router,
    groups_router,
    group_lags_router,
    subscriptions_router,
    service_router,
)
