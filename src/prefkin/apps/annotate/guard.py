"""What stands between the network and the project: sizes, rates, origins, headers, and a log that keeps secrets.

Everything here is about requests as such; who may do what is decided by the token a request carries.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LARGEST_BODY", "Guard", "Rates"]

LARGEST_BODY = 65_536  # bytes
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # and never for an address with a token: those only redirect
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
log = logging.getLogger("prefkin.annotate")


class Rates:
    """A bucket of tokens for each key: `burst` at once, `each_second` from then on; the oldest keys are forgotten.

    >>> rates = Rates(each_second=1.0, burst=2)
    >>> [rates.allow("zoe", now=0.0) for _ in range(3)], rates.allow("zoe", now=1.0), rates.allow("bo", now=0.0)
    ([True, True, False], True, True)
    """

    def __init__(self, each_second: float, burst: float, most: int = 20_000) -> None:
        self.each_second, self.burst, self.most = each_second, burst, most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def allow(self, key: str, now: float | None = None) -> bool:
        """May this one do one more thing now?"""
        at = time.monotonic() if now is None else now
        with self._lock:
            left, since = self._left.pop(key, (self.burst, at))
            left = min(self.burst, left + (at - since) * self.each_second)
            self._left[key] = (left - 1.0 if left >= 1.0 else left), at
            if len(self._left) > self.most:
                self._left.popitem(last=False)
        return left >= 1.0


class Guard:
    """Refuses what is too large or comes from elsewhere, adds headers, and logs each refusal in one line.

    A change is refused if the browser says that it comes from another site. Requests without an origin are those of
    programs; what a cookie may do needs one (`app.py`).
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer that it is too large or from another site."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers, taken = Headers(scope=scope), 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > LARGEST_BODY:
                raise HTTPException(413, f"at most {LARGEST_BODY} bytes")
            return message

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    sent.setdefault(name, value)
                if not scope["path"].startswith("/static/"):
                    sent.setdefault("cache-control", "no-store")
                if message["status"] >= 400:
                    log.warning("refused: %d %s %s", message["status"], scope["method"], _route(scope))
            await send(message)

        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            await _refusal(413, f"at most {LARGEST_BODY} bytes")(scope, receive, answer)
        elif scope["method"] not in ("GET", "HEAD") and not _from_here(headers):
            await _refusal(403, "this request comes from another site")(scope, receive, answer)
        else:
            await self.app(scope, limited, answer)


def _refusal(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status, headers={"connection": "close"})


def _from_here(headers: Headers) -> bool:
    origin = headers.get("origin")
    if origin is not None:
        return urlsplit(origin).netloc == headers.get("host")
    return headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _route(scope: Scope) -> str:
    """Which page it was about, without what may be a secret: the pattern, never the address."""
    route: Any = scope.get("route")
    return getattr(route, "path", "elsewhere")
