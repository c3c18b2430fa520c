"""What is written about the project is true of it."""

import ast
import importlib
import inspect
import re
import shlex
import time
import tomllib
from pathlib import Path

import pytest

import prefkin
from tests.conftest import prefkin_says

ROOT = Path(__file__).parent.parent

PACKAGE = ROOT / "src/prefkin"
WITHIN = [
    *("models/off_c2pl", "models/prefkin", "models/prefkin/partition", "models/prefkin/out_of_core"),
    *("reproduce/methods", "reproduce/worlds"),
    *("apps/annotate", "apps/cli", "apps/export", "apps/report"),
]


def listed(folder):
    """The names at the beginning of lines in a package's docstring."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    return re.findall(r"^(\w+)  ", text, flags=re.MULTILINE)


def test_the_order_of_the_packages_is_stated_once_and_for_all():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = config["tool"]["importlinter"]["contracts"][0]["layers"]
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/architecture.md").read_text(), flags=re.MULTILINE)
    assert listed(PACKAGE) == table == layers[-2::-1]


@pytest.mark.parametrize("name", [*listed(PACKAGE), *WITHIN])
def test_a_package_says_what_is_in_it(name):
    folder = PACKAGE / name
    files = {p.stem for p in folder.glob("*.py")} | {p.parent.name for p in folder.glob("*/__init__.py")}
    assert set(listed(folder)) == {name for name in files if not name.startswith("__")}


def test_every_public_name_has_an_example():
    for name in set(prefkin.__all__) - {"__version__", "KAPPA_UNIT_BALL", "PrefkinWarning"}:
        assert ">>>" in getattr(prefkin, name).__doc__, f"{name} has no example"
    modules = re.findall(r"^   (prefkin(?:\.[a-z_]+)+)$", (ROOT / "docs/reference.md").read_text(), flags=re.MULTILINE)
    listed = [importlib.import_module(name) for name in modules if not hasattr(prefkin, name.partition(".")[2])]
    assert len(listed) > 5
    for module in listed:
        for name in module.__all__:
            if inspect.isfunction(found := getattr(module, name)):
                assert ">>>" in found.__doc__, f"{module.__name__}.{name} has no example"


def test_the_commands_shown_run_and_the_demo_tells_its_story_with_pictures(tmp_path):
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    commands = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    assert commands
    shown, start = {}, time.process_time()
    for command in commands:
        program, name, *args = shlex.split(command, comments=True)
        assert program == "prefkin"
        done = prefkin_says(name, *args, cwd=tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout
        shown[name] = done.stdout
        assert name != "demo" or time.process_time() - start < 60
    for part in (
        "Who wants the same?",
        "What it bought",
        "own answers only",
        "everybody pooled",
        "next questions",
    ):
        assert part in shown["demo"]
    assert len(list((tmp_path / "demo").glob("*.png"))) == 6


def test_programs_in_the_documents_run():
    """Python in a document is a doctest, or has a test of its own: heads, a new method; what needs a cluster has not."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
            elsewhere = page.name in ("export.md", "scale.md", "experiments.md", "extending.md")
            assert ">>> " in block or elsewhere, f"{page.name}: {block}"


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "decisions").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_versions_agree():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert config["project"]["version"] == prefkin.__version__
    assert f"version: {prefkin.__version__}" in (ROOT / "CITATION.cff").read_text()
