"""What is written about the project is true of it."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import prefkin

ROOT = Path(__file__).parent.parent


def listed_in_init():
    return re.findall(r"^\d+\. (\w+)", prefkin.__doc__, flags=re.MULTILINE)


def layers():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = config["tool"]["importlinter"]["contracts"][0]["layers"]
    return [[name.strip() for name in layer.split("|")] for layer in contract]


def test_three_places_state_the_same_order():
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/architecture.md").read_text(), flags=re.MULTILINE)
    assert table == listed_in_init()
    rank = {name: depth for depth, layer in enumerate(reversed(layers())) for name in layer}
    assert sorted(rank) == sorted(table)
    assert [rank[name] for name in table] == sorted(rank[name] for name in table)


def test_every_file_of_the_package_has_its_place():
    package = ROOT / "src/prefkin"
    files = {p.stem for p in package.glob("*.py")} | {p.parent.name for p in package.glob("*/__init__.py")}
    assert files - {"__init__"} == set(listed_in_init())


def test_every_public_name_has_an_example():
    for name in set(prefkin.__all__) - {"__version__", "KAPPA_UNIT_BALL", "PrefkinWarning"}:
        assert ">>>" in getattr(prefkin, name).__doc__, f"{name} has no example"


@pytest.mark.parametrize("page", ["README.md"])
def test_the_commands_shown_run(page, tmp_path):
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    commands = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    assert commands
    for command in commands:
        program, *args = shlex.split(command)
        assert program == "prefkin"
        done = subprocess.run(
            [sys.executable, "-m", "prefkin.cli", *args], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout


def test_links_between_pages_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_versions_agree():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert config["project"]["version"] == prefkin.__version__
    assert f"version: {prefkin.__version__}" in (ROOT / "CITATION.cff").read_text()
