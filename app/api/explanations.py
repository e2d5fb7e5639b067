"""Errors in the form that the clients of a path read."""

from __future__ import annotations

from app.api.frame import path_as_sent
from app.api.rest_v2.errors import error_answer, is_for_proxies
from app.http.answers import Answer, Scope
from app.http.problems import problem_answer
from app.http.request_checks import trace_of
from app.operations.ingest.hec import hec_error, is_hec
from app.operations.ingest.otlp import is_otlp, status_answer


def explained(error: Exception, scope: Scope) -> Answer:
    """Return a problem document; or what a proxy, an OTLP or a Splunk collector would answer."""
    head = dict(scope["headers"])
    path, trace = path_as_sent(scope), trace_of(head)
    if is_for_proxies(scope["path"]):
        return error_answer(error, path=path, trace=trace)
    if is_otlp(scope["path"]):
        return status_answer(error, path=path, trace=trace, head=head)
    if is_hec(scope["path"]):
        return hec_error(error, path=path, trace=trace, head=head)
    return problem_answer(error, path=path, trace=trace)
