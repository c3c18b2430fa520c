"""A project as requests meet it: who is calling, and what they may do."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import HTTPException, Request

from prefkin.apps.annotate.engine import Engine
from prefkin.apps.annotate.guard import Rates
from prefkin.apps.annotate.items import Items
from prefkin.apps.annotate.learning import Learner
from prefkin.apps.annotate.store import NameTaken, Person, Store
from prefkin.apps.annotate.tokens import Role, hashed, new_token

__all__ = ["Caller", "Project", "the_joiner", "the_organiser", "the_person", "the_project"]


@dataclass(frozen=True)
class Caller:
    """Whoever sent a request, by their token."""

    project: Project
    token: str
    role: Role
    person: Person | None

    @property
    def who(self) -> Person:
        """The person behind a person's token."""
        assert self.person is not None
        return self.person


@dataclass(eq=False)
class Project:
    """Everything that a server serves."""

    engine: Engine
    learner: Learner
    title: str = "Which do you prefer?"
    guidelines: str = ""  # Markdown
    images: Path | None = None
    demo: bool = False
    names: dict[int, str] = field(default_factory=dict)  # of people, by their number
    rates: Rates = field(default_factory=lambda: Rates(each_second=100.0, burst=300.0))  # of one caller
    guesses: Rates = field(default_factory=lambda: Rates(each_second=2.0, burst=50.0))  # wrong tokens of one address
    joins: Rates = field(default_factory=lambda: Rates(each_second=20.0, burst=500.0))

    @property
    def store(self) -> Store:
        """Where answers are kept."""
        return self.engine.store

    @property
    def items(self) -> Items:
        """What is shown."""
        return self.engine.items

    def cookie(self, role: Role) -> str:
        """The name of a cookie: another one for each project and role, since cookies do not know ports."""
        return f"prefkin_{self.items.fingerprint[:8]}_{role}"

    def join(self, open_token: str, name: str, key: str | None = None, *, vouched: bool = False) -> str:
        """The token of somebody new; with the same key again, the one they have.

        Whoever comes through the open link is nobody whom the model knows, unless somebody vouches for them: they would
        see what another person wants.
        """
        shown = "".join(c for c in unicodedata.normalize("NFC", name) if c.isprintable()).strip()
        if not shown:
            raise HTTPException(422, "a name needs at least one letter")
        if not self.joins.allow("join"):
            raise HTTPException(429, "many people are joining; try again in a moment")
        token = new_token()
        if key is not None:
            token = hmac.new(open_token.encode(), key.encode(), hashlib.sha256).hexdigest()[:32]
            if self.store.who(token) is not None:
                return token
        if self.engine.settings().get("closed"):
            raise HTTPException(403, "this project is closed")
        if not vouched and shown in self.learner.base.labels:
            raise HTTPException(409, f"the model knows somebody called {shown!r}; choose another name")
        try:
            self.store.join(shown, token)
        except NameTaken as error:
            raise HTTPException(409, str(error)) from None
        return token

    def person(self, number: int) -> Person:
        """Somebody by their number."""
        if number not in self.names:
            self.names = {person.id: person.name for person in self.store.people()}
        return Person(number, self.names[number])


def the_project(request: Request) -> Project:
    """The project that this server serves."""
    project: Project = request.app.state.project
    return project


def _caller(request: Request, role: Role) -> Caller:
    """Who sent this, if they may act as `role`."""
    project = the_project(request)
    given = request.headers.get("authorization", "")
    token = given[7:].strip() if given[:7].lower() == "bearer " else ""
    if not token:
        token = request.cookies.get(project.cookie(role), "")
        # a browser sends cookies whoever made it send the request: a change must come from a page of ours
        if token and request.method not in ("GET", "HEAD") and "origin" not in request.headers:
            raise HTTPException(403, "a change by cookie needs an Origin header")
    address = request.client.host if request.client else "unknown"
    found = project.store.who(token) if token else None
    if found is None:
        if not project.guesses.allow(address):
            raise HTTPException(429, "too many wrong tokens; wait a moment")
        raise HTTPException(401, "open your own link: this needs a token that is known here")
    if found[0] != role:
        raise HTTPException(403, f"this link is for another purpose than {role}")
    if not project.rates.allow(hashed(token)):
        raise HTTPException(429, "that was fast; wait a moment")
    number = found[1]
    return Caller(project, token, role, None if number is None else project.person(number))


def the_person(request: Request) -> Caller:
    """Somebody who answers."""
    return _caller(request, "person")


def the_joiner(request: Request) -> Caller:
    """Somebody with the open link."""
    return _caller(request, "open")


def the_organiser(request: Request) -> Caller:
    """The organiser."""
    return _caller(request, "organiser")
