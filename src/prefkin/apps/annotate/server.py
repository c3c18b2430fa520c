"""Starting: links for everybody, a port, and a server that can be killed at any moment."""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from prefkin.apps.annotate.app import make_app
from prefkin.apps.annotate.project import Project
from prefkin.apps.annotate.store import Store
from prefkin.apps.annotate.tokens import Role, hashed, new_token
from prefkin.data.storage import write_atomically
from prefkin.errors import InvalidParameter, StoreError

__all__ = ["Links", "bound", "is_local", "kept_links", "make_links", "serve"]

SWITCH = 0.0005  # seconds for which a computation may keep whoever reads requests waiting
PATHS: dict[Role, str] = {"person": "p", "open": "j", "organiser": "o"}


@dataclass(frozen=True)
class Links:
    """Addresses to hand out; the last part of each is a secret."""

    organiser: str
    open: str | None
    people: dict[str, str]

    def save(self, path: Path) -> None:
        """Write them to a file that only its owner can read."""
        write_atomically(path, (json.dumps(vars(self), indent=1, ensure_ascii=False) + "\n").encode())
        path.chmod(0o600)


def make_links(store: Store, url: str, names: list[str], anybody: bool, kept: Path | None) -> Links:
    """Links for everybody: those in the file `kept` that still hold, new ones for the rest.

    Links that were handed out before go on working, whether or not they are in the file: only hashes are stored.
    """
    old = kept_links(kept)
    known = {person.name: person.id for person in store.people()}
    known |= {person.name: person.id for person in store.join_all([name for name in names if name not in known])}
    allowed, new = store.allowed(), list[tuple[str, Role, int | None]]()

    def link(role: Role, given: str | None, person: int | None = None) -> str:
        token = (given or "").rpartition("/")[2]
        if allowed.get(hashed(token)) != (role, person):
            token = new_token()
            new.append((token, role, person))
        return f"{url}/{PATHS[role]}/{token}"

    links = Links(
        link("organiser", old.organiser),
        link("open", old.open) if anybody else None,
        {name: link("person", old.people.get(name), known[name]) for name in names},
    )
    store.allow(new)
    return links


def kept_links(path: Path | None) -> Links:
    """Those that were written to this file before, if there is one."""
    if path is None or not path.exists():
        return Links("", None, {})
    try:
        found = json.loads(path.read_text())
        return Links(str(found["organiser"]), found["open"], dict(found["people"]))
    except (ValueError, KeyError, TypeError, OSError):
        raise InvalidParameter(f"--links {path}: there is another file of that name; give another one") from None


def bound(host: str, port: int) -> socket.socket:
    """A socket on this address, or one line that says why not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(512)
    except (OSError, OverflowError) as error:
        found.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidParameter(f"port {port} of {host} cannot be used ({reason}); give another --port") from None
    return found


def is_local(host: str) -> bool:
    """Can only programs on this machine reach it?

    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(project: Project, where: socket.socket) -> None:
    """Serve until somebody says stop; every answer that was acknowledged is in the store by then."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    logger = logging.getLogger("prefkin.annotate")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    config = uvicorn.Config(
        make_app(project),
        access_log=False,  # its lines would hold tokens
        log_level="critical",  # what fails is logged by the application, in one line
        server_header=False,
        proxy_headers=True,  # of a proxy on this machine
        timeout_graceful_shutdown=2,
        timeout_keep_alive=30,
        backlog=512,
    )
    sys.setswitchinterval(SWITCH)
    try:
        uvicorn.Server(config).run(sockets=[where])
    finally:
        project.learner.stop()
        project.engine.stop()
        try:
            project.store.close()
        except StoreError as error:
            logger.warning("%s", error)
