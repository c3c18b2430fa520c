"""The same for programs: JSON with an OpenAPI description, every call idempotent."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from prefkin.apps.annotate.engine import State
from prefkin.apps.annotate.export import json_lines, records
from prefkin.apps.annotate.project import Project, the_joiner, the_organiser, the_person

__all__ = ["router"]


class Strict(BaseModel):
    """What is sent holds what is asked for, and nothing else."""

    model_config = ConfigDict(extra="forbid")


class Joining(Strict):
    """A name, and maybe a secret of the client: the same secret again gives the same token."""

    name: str = Field(min_length=1, max_length=80)
    key: str | None = Field(default=None, min_length=22, max_length=200, description="Random; makes a repeat safe.")


class Answering(Strict):
    """An answer to the question of this id."""

    id: str = Field(min_length=1, max_length=64)
    choice: Literal["left", "right", "skip"]


class Undoing(Strict):
    """The question that is shown, "" for none; if it is another one by now, nothing is undone."""

    id: str | None = Field(default=None, max_length=64)


class Joined(BaseModel):
    """The token of this person."""

    token: str


class Side(BaseModel):
    """One of the two that are compared, as it is shown."""

    action: str
    text: str
    image: str | None = None


class Question(BaseModel):
    """What to ask; `about` so many more answers will do, `enough` when they may stop."""

    id: str
    context: str
    prompt: str
    left: Side
    right: Side
    answered: int
    about: int
    enough: bool


class Done(BaseModel):
    """There is no question: paused, closed, or all asked."""

    done: Literal[True] = True
    answered: int
    reason: str


class Taken(BaseModel):
    """An answer that is kept, and what comes next."""

    answered: int
    next: Question | Done


class Refused(BaseModel):
    """Why not, in one line."""

    detail: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Refused, "description": "Not readable."},
    401: {"model": Refused, "description": "No token, or one that is not known here."},
    403: {"model": Refused, "description": "The token is for something else, or the request from elsewhere."},
    413: {"model": Refused, "description": "Too large."},
    422: {"model": Refused, "description": "Not what is asked for."},
    429: {"model": Refused, "description": "Too fast."},
    503: {"model": Refused, "description": "The store cannot be reached now; send it again."},
}
router = APIRouter(prefix="/api", responses=REFUSALS)


def shown(project: Project, state: State) -> Question | Done:
    """A state as programs read it."""
    asked = state.question
    if asked is None:
        return Done(answered=state.answered, reason=state.reason)
    items, x = project.items, asked.context

    def side(action: int) -> Side:
        return Side(action=items.label(x, action), text=items.text(x, action), image=items.image(x, action) or None)

    return Question(
        id=asked.id,
        context=items.context(x),
        prompt=items.prompts[x],
        left=side(asked.left),
        right=side(asked.right),
        answered=state.answered,
        about=state.about,
        enough=state.enough,
    )


@router.post("/join", responses={409: {"model": Refused, "description": "The name is taken."}})
def join(request: Request, body: Joining) -> Joined:
    """Join under a name, with the token of the open link."""
    caller = the_joiner(request)
    return Joined(token=caller.project.join(caller.token, body.name, body.key))


@router.get("/question")
def question(request: Request) -> Question | Done:
    """The question to answer now; the same one until it is answered or skipped."""
    caller = the_person(request)
    return shown(caller.project, caller.project.engine.question(caller.who))


@router.post("/answer", responses={404: {"model": Refused, "description": "This question was never asked."}})
def answer(request: Request, body: Answering) -> Taken:
    """Take an answer. It is kept when this returns; the same id again changes nothing."""
    caller = the_person(request)
    state = caller.project.engine.answer(caller.who, body.id, body.choice)
    return Taken(answered=state.answered, next=shown(caller.project, state))


@router.post("/undo")
def undo(request: Request, body: Undoing | None = None) -> Question | Done:
    """Take back the last answer or skip, and ask about it again."""
    caller = the_person(request)
    return shown(caller.project, caller.project.engine.undo(caller.who, body.id if body else None))


@router.get(
    "/answers",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/jsonl": {}}, "description": "JSON lines."}},
)
def answers(request: Request) -> Response:
    """Everybody's answers and skips, one JSON line each."""
    project = the_organiser(request).project
    rows = records(project.items, project.store.histories())
    return StreamingResponse(json_lines(rows), media_type="application/jsonl")
