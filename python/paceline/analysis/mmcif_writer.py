"""Write structures as mmCIF (PDBx), which has no limits on numbers of atoms and residues."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import TextIO

import numpy as np

from paceline.analysis.guess_elements_and_donors import elements_of
from paceline.contract.system_interface import Atoms, System, attribute_of

#: Data items of the category `_atom_site`, in the order of the columns.
_ITEMS = (
    *("group_PDB", "id", "type_symbol", "label_atom_id", "label_alt_id", "label_comp_id"),
    *("label_asym_id", "label_entity_id", "label_seq_id", "pdbx_PDB_ins_code"),
    *("Cartn_x", "Cartn_y", "Cartn_z", "occupancy", "B_iso_or_equiv", "auth_seq_id"),
    *("auth_asym_id", "pdbx_PDB_model_num"),
)
_CELL = ("length_a", "length_b", "length_c", "angle_alpha", "angle_beta", "angle_gamma")
#: Pattern of values that need no quotes, unless they begin with one of `_WORDS`.
_PLAIN = re.compile(r"[A-Za-z0-9+*/-][A-Za-z0-9+*/'._-]*")
_WORDS = ("data_", "save_", "loop_", "stop_", "global_")


def write_mmcif(file: TextIO, system: System, title: str) -> None:
    """Write the current frame of a Universe; without chainIDs, all atoms are in chain A."""
    atoms, dimensions = system.atoms, system.trajectory.ts.dimensions
    file.write(f"data_paceline\n_struct.title {_value(title)}\n")
    if dimensions is not None:
        file.writelines(
            f"_cell.{name} {value:.5f}\n" for name, value in zip(_CELL, dimensions, strict=True)
        )
        file.write("_symmetry.space_group_name_H-M 'P 1'\n")
    file.write("loop_\n" + "".join(f"_atom_site.{name}\n" for name in _ITEMS))
    x, y, z = (map("{:.5f}".format, axis) for axis in atoms.positions.T.tolist())
    before, after = _columns(atoms)
    rows = zip(*before, x, y, z, *after, strict=True)
    file.writelines(" ".join(row) + " 1\n" for row in rows)


def _columns(atoms: Atoms) -> tuple[list[Iterable[str]], list[Iterable[str]]]:
    """Make the columns of `_atom_site` before and after the positions, without the last one."""
    n = len(atoms)
    chains = _of(atoms, "chainIDs", "A").astype(str)
    numbers = list(map(str, _numbers(atoms, chains).tolist()))
    # If a chain ID occurs again after other chains, such as for water, it gets a new asym ID there.
    begins = np.concatenate([[False], chains[1:] != chains[:-1]])
    parts = np.array([_letters(k) for k in range(int(begins.sum()) + 1)])[np.cumsum(begins)]
    elements = [one.capitalize() or "X" for one in elements_of(atoms)]
    named = _values(chains)
    return (
        [
            _values(_of(atoms, "record_types", "ATOM")),
            map(str, range(1, n + 1)),
            elements,
            _values(_of(atoms, "names", "X")),
            _values(_of(atoms, "altLocs", "")),
            _values(_of(atoms, "resnames", "UNK")),
            parts.tolist(),
            ["?"] * n,
            numbers,
            _values(_of(atoms, "icodes", ""), "?"),
        ],
        [
            map("{:.2f}".format, _of(atoms, "occupancies", 1.0).tolist()),
            map("{:.2f}".format, _of(atoms, "tempfactors", 0.0).tolist()),
            numbers,
            named,
        ],
    )


def _of(atoms: Atoms, name: str, default: object) -> np.ndarray:
    """Return an attribute of atoms, or a default if the topology lacks it."""
    found = attribute_of(atoms, name)
    return np.full(len(atoms), default) if found is None else np.asarray(found)


def chains_with_repeats(atoms: Atoms, chains: np.ndarray) -> np.ndarray:
    """Find the chains in which several residues have the same number, name and insertion code.

    Other programs would merge such residues, which changes the order of atoms.
    """
    first = np.unique(atoms.resindices, return_index=True)[1]
    names = [_of(atoms, name, "")[first].tolist() for name in ("resids", "resnames", "icodes")]
    counts = Counter(zip(chains[first].tolist(), *names, strict=True))
    return np.array(sorted({chain for (chain, *_), n in counts.items() if n > 1}), dtype=str)


def _numbers(atoms: Atoms, chains: np.ndarray) -> np.ndarray:
    """Return the residue number of each atom.

    Residues of chains in `chains_with_repeats` get new numbers from 1.
    """
    found = _of(atoms, "resids", 1).copy()
    for name in chains_with_repeats(atoms, chains):
        some = chains == name
        found[some] = np.unique(atoms.resindices[some], return_inverse=True)[1].reshape(-1) + 1
    return found


def _letters(number: int) -> str:
    """Convert a number to an asym ID in letters, as in the Protein Data Bank.

    Examples
    --------
    >>> [_letters(number) for number in (0, 25, 26, 702)]
    ['A', 'Z', 'AA', 'AAA']
    """
    found = ""
    while number >= 0:
        number, digit = divmod(number, 26)
        found, number = chr(65 + digit) + found, number - 1
    return found


def _values(texts: np.ndarray, empty: str = ".") -> list[str]:
    """Format texts as mmCIF values, and blank texts as `empty`; format each distinct text once."""
    known, numbers = np.unique(texts.astype(str), return_inverse=True)
    values = [_value(one) if one.strip() else empty for one in known.tolist()]
    return [values[k] for k in numbers.reshape(-1).tolist()]


def _value(text: str) -> str:
    """Format a text as an mmCIF value, in quotes if necessary.

    Examples
    --------
    >>> print(_value("O5'"), _value("loop_1"), _value("my lipid"), _value("_x'y"))
    O5' 'loop_1' 'my lipid' "_x'y"
    """
    text = " ".join(text.split())
    if _PLAIN.fullmatch(text) and not text.lower().startswith(_WORDS):
        return text
    quote = '"' if "'" in text else "'"
    return f"{quote}{text.replace(quote, ' ')}{quote}"
