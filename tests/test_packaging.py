"""Tests of files published with the code: licences, metadata, templates, workflows."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES_WITH_ADDRESSES = (
    *(".zenodo.json", "CITATION.cff", "packaging/conda/recipe.yaml"),
    *("packaging/mdakit/metadata.yaml", ".github/ISSUE_TEMPLATE/config.yml", "mkdocs.yml"),
)
#: Files with the version, and the pattern of the line that contains it.
FILES_WITH_VERSIONS = {
    ".zenodo.json": r'^  "version": "(.*)",$',
    "CITATION.cff": r"^version: (.*)$",
    "packaging/conda/recipe.yaml": r'^  version: "(.*)"$',
}


def packaging(name):
    """Import a script of packaging/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "packaging" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_licences_are_those_of_the_crates_that_are_linked():
    page = packaging("third_party").page()
    assert (ROOT / "THIRDPARTY.md").read_text(encoding="utf-8") == page, "make licences"
    assert "| pyo3 |" in page
    assert "| molly |" not in page  # only tests use it
    assert "| uPlot | 1.6.32 | MIT |" in page
    assert "Leon Sorokin" in page


def test_licences_that_are_allowed_are_those_of_cargo_deny():
    allowed = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))["licenses"]["allow"]
    assert set(allowed) == packaging("third_party").ALLOWED


def test_addresses_are_those_of_pyproject():
    addresses = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]
    home, manual = addresses["Repository"], addresses["Documentation"]
    for name in FILES_WITH_ADDRESSES:
        text = (ROOT / name).read_text(encoding="utf-8")
        found = re.findall(r"https://(?:github\.com/[\w-]+/paceline|[\w-]+\.github\.io/\S*)", text)
        assert found, name
        assert set(found) <= {home, manual}, name


def test_the_page_of_pypi_is_the_readme_s_in_short_with_links_that_work_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    page = (ROOT / project["readme"]).read_text(encoding="utf-8")
    links = re.findall(r"\]\((.*?)\)", page)
    assert links
    # PyPI shows only the page, without the files to which relative links lead.
    assert all(link.startswith(tuple(project["urls"].values())) for link in links), links
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page.split("\n\n")[:2] == readme.split("\n\n")[:2]
    assert f'pip install "{project["name"]}[' in page


def test_an_image_is_built_without_what_git_ignores():
    left_out = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split():
        # Without a leading slash, git matches the name in every folder; images match only at the
        # top.
        pattern = line.strip("/") if line.startswith("/") else f"**/{line.strip('/')}"
        assert pattern in left_out, f"{line} of .gitignore"
    assert ".git" in left_out


def test_an_image_is_built_from_what_a_wheel_needs():
    lines = (ROOT / "packaging/containers/Containerfile").read_text(encoding="utf-8").splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ")]
    sources = {one for names in copies for one in names if not names[0].startswith("--from")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {"Cargo.toml", "Cargo.lock", "pyproject.toml", "crates", "python"}
    assert sources == needed | {project["readme"], *project["license-files"]}
    # If a stage came from the cache, wheels in a mount were not those of its last step.
    assert not any("--mount=from" in line for line in lines)


def test_versions_are_those_of_the_crates():
    version = tomllib.loads((ROOT / "Cargo.toml").read_text("utf-8"))["workspace"]["package"]
    for name, pattern in FILES_WITH_VERSIONS.items():
        found = re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert found == [version["version"]], name


def test_dependencies_of_other_packagers_are_ours():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = {one.lower().replace(">=", " >=") for one in project["dependencies"]}
    for name in ("conda/recipe.yaml", "environment.yml"):
        text = (ROOT / "packaging" / name).read_text(encoding="utf-8")
        lines = {line.strip(" -") for line in text.splitlines() if " - " in line}
        assert needed <= lines, name
    entry = (ROOT / "packaging" / "mdakit" / "metadata.yaml").read_text(encoding="utf-8")
    assert f'python_requires: "{project["requires-python"]}"' in entry
    assert (
        f'mdanalysis_requires: "{project["dependencies"][0].removeprefix("MDAnalysis")}"' in entry
    )


def test_tests_and_demonstration_install_what_figures_need():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = extras["optional-dependencies"]
    for name in ("demo", "test", "docs", "bench"):
        assert set(extras["plot"]) <= set(extras[name]), name


def test_a_wheel_is_timed_by_the_commands_of_the_manual():
    measured = packaging("test_wheel")
    for page in ("README.md", "docs/installing.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        for words in measured.INSTALL.values():
            assert f"{' '.join(words)} dist/paceline-*.whl {measured.FIGURES}" in text, page


def test_workflows_call_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    n_calls = 0
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for line in re.findall(r"run: (?!\|)(.*)", path.read_text(encoding="utf-8")):
            words = line.split()
            assert words[0] in ("make", "rustup", "sudo"), f"{path.name}: {line}"
            if words[0] == "make":
                wanted = {word for word in words[1:] if "=" not in word}
                assert wanted <= targets, f"{path.name}: {wanted - targets}"
                n_calls += 1
    assert n_calls >= 8


#: A stand-in for Python 3.10.
OLDER_PYTHON = f"""#!/bin/sh
exec {sys.executable} -c "import sys; sys.version_info = (3, 10); $2"
"""
#: Output of pip without a network, after much other text.
WITHOUT_NETWORK = """#!/bin/sh
echo "ERROR: No matching distribution found for maturin" >&2
exit 1
"""


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
@pytest.mark.parametrize(
    ("target", "program", "sentence"),
    [
        ("publish-docs", None, "make publish-docs VERSION=1.2.3 ALIAS=latest, or VERSION=dev"),
        (".venv/bin/python", OLDER_PYTHON, "python 3.11 or newer is needed, found 3.10; name one"),
        (".venv/wheel-tools", WITHOUT_NETWORK, "without a network, set PIP_NO_INDEX=1 and"),
    ],
)
def test_targets_that_cannot_be_made_say_what_to_do(target, program, sentence, tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "crates").mkdir()
    python = tmp_path / (".venv/bin/python" if "tools" in target else "python3.10")
    if program is not None:
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(program, encoding="utf-8")
        python.chmod(0o755)
    command = ["make", "-C", tmp_path, target, f"PYTHON={python}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_commands_that_install_packages_say_what_to_do_without_a_network():
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    installs = re.compile(r"^\t.*(\$\(PIP\)|\$\(QUICK_INSTALL\)|pip install|cargo install)")
    installing = [line for line in lines if installs.search(line)]
    assert len(installing) >= 10
    # Without the package of one test, that test is skipped.
    assert all(line.endswith(("$(OR_SAY)", 'is skipped" >&2')) for line in installing), installing


@pytest.mark.skipif(os.name == "nt" or not shutil.which("make"), reason="there is no make")
def test_tests_with_the_next_mdanalysis_are_skipped_by_name_without_a_network(tmp_path):
    repository = "file:///nowhere/mdanalysis.git"
    words = ("-o", ".venv/built", "-o", ".venv/bin/python", f"MDANALYSIS={repository}")
    command = ["make", "-C", str(ROOT), "test-develop", *words, "PIP=false"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith(
        "test-develop: skipped, since MDAnalysis's development version is out of reach: "
        f"{repository}\n"
    )


#: pip-audit without access to its database; this is a failure only if the audit is required.
WITHOUT_DATABASE = """#!/bin/sh
case "$*" in *--strict*) exit 1;; esac
"""


@pytest.mark.skipif(os.name == "nt" or not shutil.which("make"), reason="there is no make")
def test_an_audit_without_its_database_fails(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    programs = {"cargo": "#!/bin/sh\n", "python": "#!/bin/sh\n", "pip-audit": WITHOUT_DATABASE}
    (tmp_path / "crates").mkdir()
    folder = tmp_path / ".venv/bin"
    folder.mkdir(parents=True)
    for name, program in programs.items():
        (folder / name).write_text(program, encoding="utf-8")
        (folder / name).chmod(0o755)
    variables = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = ["make", "-C", tmp_path, "audit"]
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert done.returncode == 2
    assert "Python packages have known weaknesses, or PyPI's database of them" in done.stderr
