"""Check files for other services: the recipe, the MDAKits entry, issue forms, Zenodo's metadata.

The recipe is rendered by rattler-build. The others, with the paper for JOSS among them, have no
validator that works without a network; their required entries and types are those that the services
state.
"""

import json
import re
from pathlib import Path

import yaml
from rattler_build import Stage0Recipe, VariantConfig

ROOT = Path(__file__).resolve().parents[1]
#: Entries of utils/mdakit.py in MDAnalysis/MDAKits, and whether one is required.
MDAKIT = {
    **dict.fromkeys(("project_name", "description", "license", "project_home"), (str, True)),
    **dict.fromkeys(("python_requires", "documentation_home", "documentation_type"), (str, True)),
    **dict.fromkeys(("authors", "maintainers", "keywords"), (list, True)),
    **dict.fromkeys(("install", "src_install", "run_tests", "test_dependencies"), (list, False)),
    "publications": (list, False),
    **dict.fromkeys(("import_name", "project_org", "mdanalysis_requires"), (str, False)),
    **dict.fromkeys(("development_status", "changelog", "community_home"), (str, False)),
}
#: Entries of the head of a paper, its sections in their order, and its words, as JOSS wants them.
PAPER = ("title", "tags", "authors", "affiliations", "date", "bibliography")
SECTIONS = (
    *("Summary", "Statement of need", "State of the field", "Software design"),
    *("Research impact statement", "AI usage disclosure", "Acknowledgements", "References"),
)
WORDS = range(750, 1751)
#: Kinds of the elements of an issue form.
KINDS = {"checkboxes", "dropdown", "input", "markdown", "textarea"}


def check_recipe() -> None:
    """Render the recipe for this platform."""
    folder = ROOT / "packaging" / "conda"
    variants = VariantConfig.from_file(str(folder / "variants.yaml"))
    rendered = Stage0Recipe.from_file(str(folder / "recipe.yaml")).render(variants)
    assert len(rendered) == 1, rendered


def check_mdakit() -> None:
    """Compare names and types of the entries with those of the registry."""
    entry = yaml.safe_load((ROOT / "packaging" / "mdakit" / "metadata.yaml").read_text("utf-8"))
    for name, (kind, required) in MDAKIT.items():
        value = entry.get(name)
        assert not required or value, f"metadata.yaml lacks {name}"
        assert value is None or isinstance(value, kind), f"{name} is no {kind.__name__}"
        if isinstance(value, list):
            assert all(isinstance(one, str) for one in value), f"{name} holds more than text"
    unknown = entry.keys() - MDAKIT.keys()
    assert not unknown, f"metadata.yaml has unknown entries {unknown}"


def check_forms() -> None:
    """Check that GitHub can show the issue forms."""
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        form = yaml.safe_load(path.read_text("utf-8"))
        if path.name == "config.yml":
            assert all(one.keys() == {"name", "url", "about"} for one in form["contact_links"])
            continue
        assert all(form[name] for name in ("name", "description", "body")), path
        names = [one["id"] for one in form["body"]]
        assert len(set(names)) == len(names), f"{path.name}: an id twice"
        for one in form["body"]:
            assert one["type"] in KINDS, f"{path.name}: {one['type']}"
            assert one["attributes"]["label"], path.name


def check_zenodo() -> None:
    """Check the entries that Zenodo needs of a record of software."""
    record = json.loads((ROOT / ".zenodo.json").read_text("utf-8"))
    for name in ("title", "upload_type", "description", "creators", "license", "access_right"):
        assert record[name], name
    assert all(one["name"] for one in record["creators"])
    assert all({"identifier", "relation"} <= one.keys() for one in record["related_identifiers"])


def check_paper() -> None:
    """Check head, sections, length, citations and figures of the paper."""
    folder = ROOT / "paper"
    _, head, text = (folder / "paper.md").read_text("utf-8").split("---\n", 2)
    entries = yaml.safe_load(head)
    missing = [name for name in PAPER if not entries.get(name)]
    assert not missing, f"the paper's head lacks {', '.join(missing)}"
    sections = tuple(re.findall(r"^# (.*)$", text, re.MULTILINE))
    assert sections == SECTIONS, f"the paper has the sections {sections}"
    assert len(text.split()) in WORDS, f"the paper has {len(text.split())} words"
    cited = set(re.findall(r"@(\w+)", text))
    known = set(
        re.findall(r"^@\w+\{(\w+),", (folder / "paper.bib").read_text("utf-8"), re.MULTILINE)
    )
    assert cited == known, f"cited or listed alone: {cited ^ known}"
    figures = re.findall(r"!\[[^]]*\]\((.*?)\)", text)
    assert figures
    assert all((folder / name).is_file() for name in figures), figures


if __name__ == "__main__":
    for check in (check_recipe, check_mdakit, check_forms, check_zenodo, check_paper):
        check()
        print(f"{check.__name__.removeprefix('check_')}: ok")
