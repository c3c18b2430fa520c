"""The pages: plain forms that work without JavaScript, which only makes them quicker."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Form, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from fastapi.templating import Jinja2Templates
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from prefkin.apps.annotate.engine import State
from prefkin.apps.annotate.export import FORMS, comparisons, in_form, json_lines, records
from prefkin.apps.annotate.overview import overview
from prefkin.apps.annotate.project import Project, the_joiner, the_organiser, the_person, the_project
from prefkin.apps.annotate.result import result_of
from prefkin.apps.annotate.text import as_html
from prefkin.apps.annotate.tokens import Role, new_token
from prefkin.data.formats import as_csv

__all__ = ["RESULT_AFTER", "error_page", "router"]

RESULT_AFTER = 10  # answers, or when it is enough
YEAR = 31_536_000
DECISIONS = {
    "pause": {"paused": True},
    "go on": {"paused": False},
    "close": {"closed": True},
    "open": {"closed": False},
    "show results": {"results": True},
    "hide results": {"results": False},
}
"""What the organiser's buttons decide."""
router = APIRouter(include_in_schema=False)

_environment = Environment(
    loader=FileSystemLoader(str(files("prefkin.apps.annotate") / "templates")),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters["markdown"] = lambda text: Markup(as_html(text))
_templates = Jinja2Templates(env=_environment)


def _page(request: Request, template: str, code: int = 200, /, **content: Any) -> HTMLResponse:
    project = the_project(request)
    return _templates.TemplateResponse(request, template, {"project": project, **content}, status_code=code)


def error_page(request: Request, status: int, detail: str) -> HTMLResponse:
    """An error as a page."""
    return _page(request, "error.html", status, detail=detail)


# -- links -----------------------------------------------------------------------------------------------------------


def _enter(request: Request, token: str, role: Role, where: str) -> Response:
    """Keep the token in a cookie and go to an address without it: no title, history or referrer will hold it."""
    project = the_project(request)
    found = project.store.who(token)
    address = request.client.host if request.client else "unknown"
    if found is None and not project.guesses.allow(address):
        raise HTTPException(429, "too many wrong links; wait a moment")
    if found is None or found[0] != role:
        raise HTTPException(401, "this link is not known here; ask for another one")
    response = RedirectResponse(where, 303, headers={"referrer-policy": "no-referrer"})
    secure = request.url.scheme == "https"
    response.set_cookie(project.cookie(role), token, max_age=YEAR, httponly=True, samesite="lax", secure=secure)
    return response


@router.get("/p/{token}")
def personal(request: Request, token: str) -> Response:
    """A personal link."""
    return _enter(request, token, "person", "/")


@router.get("/j/{token}")
def open_link(request: Request, token: str) -> Response:
    """The link through which anybody joins."""
    return _enter(request, token, "open", "/join")


@router.get("/o/{token}")
def organiser_link(request: Request, token: str) -> Response:
    """The organiser's link."""
    return _enter(request, token, "organiser", "/organiser")


# -- joining ---------------------------------------------------------------------------------------------------------


@router.get("/join")
def join_page(request: Request) -> Response:
    """Under which name?"""
    the_joiner(request)
    return _page(request, "join.html", key=new_token(), problem="", name="")


@router.post("/join")
def join(request: Request, name: Annotated[str, Form()], key: Annotated[str, Form()]) -> Response:
    """Join; a form sent twice joins once."""
    caller = the_joiner(request)
    try:
        if not 22 <= len(key) <= 200 or len(name) > 80:
            raise HTTPException(422, "a name has at most 80 letters")
        token = caller.project.join(caller.token, name, key)
    except HTTPException as problem:
        return _page(request, "join.html", problem.status_code, key=new_token(), problem=problem.detail, name=name[:80])
    return _enter(request, token, "person", "/")


# -- answering -------------------------------------------------------------------------------------------------------


def _question(request: Request, state: State) -> Response:
    project = the_project(request)
    allowed = project.engine.settings().get("results", False)
    ready = allowed and (state.enough or state.answered >= RESULT_AFTER or state.question is None)
    part = "x-part" in request.headers
    return _page(request, "_question.html" if part else "question.html", state=state, result_ready=ready)


@router.get("/")
def home(request: Request) -> Response:
    """The question to answer now."""
    project = the_project(request)
    if project.cookie("person") not in request.cookies:
        if project.cookie("open") in request.cookies:
            return RedirectResponse("/join", 303)
        return _page(request, "welcome.html")
    return _question(request, project.engine.question(the_person(request).who))


@router.post("/answer")
def answer(
    request: Request,
    id: Annotated[str, Form(max_length=64)],
    choice: Annotated[str, Form(pattern="^(left|right|skip)$")],
) -> Response:
    """Take an answer; the next question at once for the script, by a redirect for a form."""
    caller = the_person(request)
    state = caller.project.engine.answer(caller.who, id, choice)
    return _question(request, state) if "x-part" in request.headers else RedirectResponse("/", 303)


@router.post("/undo")
def undo(request: Request, id: Annotated[str, Form(max_length=64)] = "") -> Response:
    """Take back the last answer."""
    caller = the_person(request)
    state = caller.project.engine.undo(caller.who, id)
    return _question(request, state) if "x-part" in request.headers else RedirectResponse("/", 303)


@router.get("/link")
def own_link(request: Request) -> Response:
    """A person's own link, for another device: whoever came through the open link has only a cookie."""
    return _page(request, "link.html", link=f"{request.base_url}p/{the_person(request).token}")


@router.get("/result")
def result(request: Request) -> Response:
    """What somebody seems to want, and what to recommend, once the organiser has opened it."""
    caller = the_person(request)
    engine = caller.project.engine
    if not engine.settings().get("results", False):
        raise HTTPException(403, "the organiser has not opened the results")
    return _page(request, "result.html", result=result_of(engine.conversation(caller.who), engine.items))


@router.get("/images/{name:path}")
def image(request: Request, name: str) -> Response:
    """An image of the items, to those who take part."""
    project = the_project(request)
    if project.cookie("person") in request.cookies or "authorization" in request.headers:
        the_person(request)
    else:
        the_organiser(request)
    if project.images is None or name not in project.items.images:
        raise HTTPException(404, "no such image")
    return FileResponse(project.images / name)


# -- organising ------------------------------------------------------------------------------------------------------


@router.get("/organiser")
def organiser(request: Request) -> Response:
    """The organiser's page: everybody who answers, and what can be decided."""
    return _organising(request, the_organiser(request).project, {})


def _organising(request: Request, project: Project, links: dict[str, str], problem: str = "") -> Response:
    lines = overview(project.engine, project.learner.lesson)
    again, same = sum(line.again for line in lines), sum(line.same for line in lines)
    return _page(
        request,
        "organiser.html",
        lines=lines,
        settings={"paused": False, "closed": False, "results": False} | project.engine.settings(),
        lesson=project.learner.lesson,
        failed=project.learner.failed,
        learning=project.learner.at_work,
        agreement=same / again if again else None,
        again=again,
        links=links,
        problem=problem,
        forms=list(FORMS),
    )


@router.post("/organiser")
def organise(
    request: Request,
    do: Annotated[str, Form(pattern=f"^({'|'.join([*DECISIONS, 'learn', 'add'])})$")],
    names: Annotated[str, Form()] = "",
) -> Response:
    """Do what a button says."""
    project = the_organiser(request).project
    if do == "add":
        return _add(request, project, names)
    if do == "learn":
        project.learner.now()
    else:
        project.engine.set(**DECISIONS[do])
    return RedirectResponse("/organiser", 303)


def _add(request: Request, project: Project, names: str) -> Response:
    """New people; their links are shown once, since only hashes are kept."""
    links: dict[str, str] = {}
    problem = ""
    for name in dict.fromkeys(line.strip() for line in names.splitlines() if line.strip()):
        try:
            links[name] = f"{request.base_url}p/{project.join('organiser', name[:80], vouched=True)}"
        except HTTPException as error:
            problem = str(error.detail)
    return _organising(request, project, links, problem)


@router.get("/organiser/map.png")
def user_map(request: Request) -> Response:
    """The map of users as it forms."""
    lesson = the_organiser(request).project.learner.lesson
    if lesson is None or not lesson.picture:
        raise HTTPException(404, "there is no map yet")
    return Response(lesson.picture, media_type="image/png")


@router.get("/organiser/answers/{form}")
def download(request: Request, form: str) -> Response:
    """Everybody's answers as a file."""
    project = the_organiser(request).project
    histories = project.store.histories()
    if form == "csv":
        content, name = as_csv(comparisons(project.items, histories)), "answers.csv"
    elif form == "jsonl":
        content, name = "".join(json_lines(records(project.items, histories))).encode(), "answers.jsonl"
    elif form in FORMS:
        content, name = in_form(form, project.items, histories), f"answers-{form}{FORMS[form]}"
    else:
        raise HTTPException(404, f"answers come as csv, jsonl, {', '.join(FORMS)}")
    return Response(content, media_type="text/plain", headers={"content-disposition": f'attachment; filename="{name}"'})
