"""The web application: routes put together, and errors in one line."""

from __future__ import annotations

import logging
from importlib.resources import files

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException as StarletteHTTPException

from prefkin import __version__
from prefkin.apps.annotate import api, pages
from prefkin.apps.annotate.guard import Guard
from prefkin.apps.annotate.project import Project
from prefkin.errors import SessionError, StoreError

__all__ = ["make_app"]

log = logging.getLogger("prefkin.annotate")
DESCRIPTION = (
    "Pairs for people to compare, each next one chosen by the model. Send your token: `Authorization: Bearer`."
)


def make_app(project: Project) -> FastAPI:
    """The application of one project."""
    app = FastAPI(title="prefkin annotate", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None)
    app.state.project = project
    app.include_router(api.router)
    app.include_router(pages.router)
    app.mount("/static", StaticFiles(directory=str(files("prefkin.apps.annotate") / "static")), name="static")
    app.add_middleware(Guard)

    @app.exception_handler(StarletteHTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        return _said(request, error.status_code, str(error.detail))

    @app.exception_handler(RequestValidationError)
    def unreadable(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return _said(request, 422, f"{where or 'the request'}: {first['msg']}")

    @app.exception_handler(SessionError)
    def unknown(request: Request, error: SessionError) -> Response:
        return _said(request, 404, str(error))

    @app.exception_handler(StoreError)
    def unreachable(request: Request, error: StoreError) -> Response:
        return _said(request, 503, str(error))

    @app.exception_handler(Exception)
    def failed(request: Request, error: Exception) -> Response:
        log.error("failed: %s: %.300s", type(error).__name__, " ".join(str(error).split()))
        return _said(request, 500, "something went wrong here; what was acknowledged is kept")

    return app


def _said(request: Request, status: int, detail: str) -> Response:
    """An error as the one who asked can read it."""
    headers = {"retry-after": "1"} if status in (429, 503) else None
    if request.url.path.startswith("/api/") or "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"detail": detail}, status, headers=headers)
    return pages.error_page(request, status, detail)
