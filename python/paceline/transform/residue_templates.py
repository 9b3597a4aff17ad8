"""Bonds within standard residues, found from atom names.

Amino acids, nucleotides, caps and water are recognised by their names in the PDB, CHARMM, Amber,
GROMACS and OpenMM. Bonds of heavy atoms are from the PDB's Chemical Component Dictionary (Westbrook
et al. 2015, doi:10.1093/bioinformatics/btu789). Bonds of hydrogens follow from the hydrogens'
names.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

#: Chains of bonded heavy atoms. An atom with several possible names is listed by each name; a bond
#: exists if both of its atoms exist.
_BACKBONE = "N-CA-C-O C-OXT C-OT C-OT1 C-OT2 C-OC1 C-OC2 C-O1 C-O2 CAY-CY-OY CY-N C-NT-CAT"
_SIDE_CHAINS = {
    "ALA": "CA-CB",
    "ARG": "CA-CB-CG-CD-NE-CZ-NH1 CZ-NH2",
    "ASN": "CA-CB-CG-OD1 CG-ND2",
    "ASP": "CA-CB-CG-OD1 CG-OD2",
    "CYS": "CA-CB-SG",
    "GLN": "CA-CB-CG-CD-OE1 CD-NE2",
    "GLU": "CA-CB-CG-CD-OE1 CD-OE2",
    "GLY": "",
    "HIS": "CA-CB-CG-ND1-CE1-NE2-CD2-CG",
    "HYP": "CA-CB-CG-CD-N CG-OD1",
    "ILE": "CA-CB-CG1-CD1 CG1-CD CB-CG2",
    "LEU": "CA-CB-CG-CD1 CG-CD2",
    "LYS": "CA-CB-CG-CD-CE-NZ",
    "MET": "CA-CB-CG-SD-CE",
    "MSE": "CA-CB-CG-SE-CE",
    "NLE": "CA-CB-CG-CD-CE",
    "ORN": "CA-CB-CG-CD-NE",
    "PHE": "CA-CB-CG-CD1-CE1-CZ-CE2-CD2-CG",
    "PRO": "CA-CB-CG-CD-N",
    "PTR": "CA-CB-CG-CD1-CE1-CZ-CE2-CD2-CG CZ-OH-P-O1P P-O2P P-O3P",
    "SEC": "CA-CB-SE",
    "SEP": "CA-CB-OG-P-O1P P-O2P P-O3P",
    "SER": "CA-CB-OG",
    "THR": "CA-CB-OG1 CB-CG2",
    "TPO": "CA-CB-OG1-P-O1P P-O2P P-O3P CB-CG2",
    "TRP": "CA-CB-CG-CD1-NE1-CE2-CD2-CG CD2-CE3-CZ3-CH2-CZ2-CE2",
    "TYR": "CA-CB-CG-CD1-CE1-CZ-CE2-CD2-CG CZ-OH",
    "VAL": "CA-CB-CG1 CB-CG2",
}
_CAPS = {"ACE": "CH3-C-O CA-C", "FOR": "C-O", "NH2": "", "NME": "N-C N-CH3 N-CA"}
_SUGAR = "OP1-P-OP2 P-OP3 O1P-P-O2P P-O3P P-O5T P-O5'-C5'-C4'-C3'-C2'-C1'-O4'-C4' C3'-O3' C2'-O2' "
_PURINE = "C1'-N9-C8-N7-C5-C6-N1-C2-N3-C4-N9 C4-C5 "
_PYRIMIDINE = "C1'-N1-C2-N3-C4-C5-C6-N1 C2-O2 "
_BASES = {
    "A": _PURINE + "C6-N6",
    "C": _PYRIMIDINE + "C4-N4",
    "G": _PURINE + "C6-O6 C2-N2",
    "I": _PURINE + "C6-O6",
    "T": _PYRIMIDINE + "C4-O4 C5-C7 C5-C5M",
    "U": _PYRIMIDINE + "C4-O4",
}
#: Other names of residues by standard name: protonation states, terminal residues in GROMACS, and
#: names in other programs.
_ALIASES = {
    "ARG": "ARGN ARN",
    "ASP": "ASH ASPH ASPP",
    "CYS": "CYM CYS1 CYS2 CYSH CYX",
    "GLU": "GLH GLUH GLUP",
    "HIS": "HID HIE HIP HIS1 HIS2 HISA HISB HISD HISE HISH HSD HSE HSP",
    "LYS": "LSN LYN LYSH",
    "NH2": "NHE",
    "NME": "NAC NMA",
    **{"A": "ADE", "C": "CYT", "G": "GUA", "T": "THY", "U": "URA"},
}
_WATERS = (
    "HOH WAT SOL H2O DOD OH2 HHO OHH TIP TIP2 TIP3 TIP3P TIP4 TIP4P TIP5 TIP5P T3P T4P T5P TP3 TP4 "
    "TP5 SPC SPCE OPC OPC3"
)
#: Names of oxygens, hydrogens and virtual sites of water.
_OXYGENS = {"O", "OW", "OH2"}
_WATER_HYDROGEN = re.compile(r"(H|D)(W|H)?[12]?|[12]H(W)?")
_SITE = re.compile(r"(M|MW|OM|EP|EPW|LP|LP[12]|MW[12]|EP[12]|IW)")
#: Names, without the H, of hydrogens at the N of an amino acid, also at the terminal N of a chain.
_OF_NITROGEN = {"", "N", "N1", "N2", "N3", "1", "2", "3", "T1", "T2", "T3", "T"}


class Template(NamedTuple):
    """Bonds of a residue, as indices of its atoms, and hydrogens whose bond is unknown."""

    #: "protein", "nucleic", "water", or "" for an unknown residue.
    kind: str
    #: Bonds as pairs of indices into the residue's list of atom names.
    bonds: list[tuple[int, int]]
    #: Indices of hydrogens whose bonded atom does not follow from their names.
    hydrogens: list[int]


def _residues_by_name() -> dict[str, tuple[str, str, str]]:
    """Return kind, standard name and chains of heavy atoms for every residue name."""
    found = dict.fromkeys(_WATERS.split(), ("water", "HOH", ""))
    for name, chains in _CAPS.items():
        found[name] = "protein", name, chains
    for name, chains in _SIDE_CHAINS.items():
        found[name] = "protein", name, f"{_BACKBONE} {chains}"
    for name, chains in _BASES.items():
        found[name] = "nucleic", name, _SUGAR + chains
    for name, others in _ALIASES.items():
        found |= dict.fromkeys(others.split(), found[name])
    for name, one in list(found.items()):
        if one[0] == "protein" and one[1] in _SIDE_CHAINS:
            # Amber's names for the first and last residue of a chain.
            found = {f"N{name}": one, f"C{name}": one} | found
        if one[0] == "nucleic" and len(name) == 1:
            of_ends = (f"{sugar}{name}{end}" for sugar in ("", "D", "R") for end in ("", *"35N"))
            found = dict.fromkeys(of_ends, one) | found
    return found


_NAMED = _residues_by_name()


def kind_of_residue(name: str) -> tuple[str, str]:
    """Return the kind of a residue ("protein", "nucleic", "water" or "") and its standard name.

    Examples
    --------
    >>> kind_of_residue("HSD"), kind_of_residue("DA5"), kind_of_residue("LIG")
    (('protein', 'HIS'), ('nucleic', 'A'), ('', ''))
    """
    return _NAMED.get(name.upper(), ("", "", ""))[:2]


@lru_cache(maxsize=4096)
def template_of(residue: str, names: tuple[str, ...]) -> Template:
    """Find the bonds of a residue from its atom names; none if a name occurs twice.

    Examples
    --------
    >>> template_of("SOL", ("OW", "HW1", "HW2"))
    Template(kind='water', bonds=[(0, 1), (0, 2)], hydrogens=[])
    """
    kind, standard, chains = _NAMED.get(residue.upper(), ("", "", ""))
    plain = [name.upper().replace("*", "'") for name in names]
    if len(set(plain)) < len(plain):
        return Template("", [], [])
    is_water = kind == "water" or (kind == "" and {"OW", "HW1", "HW2"} <= set(plain))
    if is_water:
        return _water(plain)
    if not kind:
        return Template("", [], [])
    places = {name: place for place, name in enumerate(plain)}
    bonds, heavy = [], set()
    for chain in chains.split():
        atoms = chain.split("-")
        heavy.update(atoms)
        bonds += [
            (places[one], places[other])
            for one, other in pairwise(atoms)
            if one in places and other in places
        ]
    heavy |= {"N"} if standard == "NH2" else set()
    partner_of = _partner_in_protein if kind == "protein" else _partner_in_nucleotide
    hydrogens = []
    for name, place in places.items():
        if name in heavy or not (key := _key_of(name)):
            continue
        partner = partner_of(key[1:], places, heavy, standard)
        if partner is None:
            hydrogens.append(place)
        else:
            bonds.append((places[partner], place))
    return Template(kind, bonds, hydrogens)


def _water(names: Sequence[str]) -> Template:
    """Return the template of a water molecule: hydrogens and virtual sites bonded to the oxygen."""
    oxygens = [place for place, name in enumerate(names) if name in _OXYGENS]
    if len(oxygens) != 1:
        return Template("", [], [])
    bonds = [
        (oxygens[0], place)
        for place, name in enumerate(names)
        if place != oxygens[0] and (_WATER_HYDROGEN.fullmatch(name) or _SITE.fullmatch(name))
    ]
    return Template("water", bonds, [])


def _key_of(name: str) -> str:
    """Return a hydrogen's name with leading digits moved to the end; empty for other atoms.

    Examples
    --------
    >>> _key_of("2HG1"), _key_of("H5''"), _key_of("CA")
    ('HG12', "H5''", '')
    """
    letters = name.lstrip("0123456789")
    key = letters + name[: len(name) - len(letters)]
    return key if key.startswith("H") else ""


def _partner_in_protein(
    key: str, places: dict[str, int], heavy: set[str], standard: str
) -> str | None:
    """Find the atom bonded to a hydrogen of an amino acid or cap; `key` is its name without H."""
    if key in places and key in heavy:  # such as HCA or HN
        return key
    if standard == "ACE":
        return next((one for one in ("CH3", "CA") if one in places), None)
    if key.startswith("Y"):  # CHARMM's acetyl cap
        return "CAY" if "CAY" in places else None
    if standard == "NME" and key not in ("", "N", "N2"):
        return next((one for one in ("CH3", "C", "CA") if one in places), None)
    if "NT" in places and key.startswith("T"):  # CHARMM's methylamide cap
        return None
    if key == "T2" and "HT1" not in places:  # at OT2 in CHARMM's neutral C-terminus
        return None
    if standard == "FOR":
        return "C" if "C" in places else None
    if key in _OF_NITROGEN:
        return "N" if "N" in places else None
    # HG12 is bonded to CG1 or OG1, and HB1 to CB.
    for ending in (key, key[:-1]):
        for element in ("C", "N", "O", "S", "SE"):
            name = element + ending
            if ending and name in places and name in heavy:
                return name
    return None


def _partner_in_nucleotide(
    key: str, places: dict[str, int], heavy: set[str], standard: str
) -> str | None:
    """Find the atom bonded to a hydrogen of a nucleotide; `key` is its name without H."""
    key = key.replace('"', "''")
    if key in places and key in heavy:  # HO3', HOP2
        return key
    wanted: list[str] = []
    if key in ("5T", "3T"):
        wanted = [f"O{key[0]}'"]
    elif re.fullmatch("O'?[2345]'?", key):
        digit = key.strip("O'")
        wanted = [f"O{digit}'"]
    elif "'" in key:
        digit = key.strip("'")[:1]
        # In CHARMM's RNA, H2' is bonded to the oxygen, and H2'' to the carbon.
        of_oxygen = key == "2'" and {"O2'", "H2''"} <= places.keys() and "HO2'" not in places
        wanted = [f"{'O' if of_oxygen else 'C'}{digit}'"]
    elif re.fullmatch("[1-9]", key):
        wanted = [f"C{key}", f"N{key}"]
    elif re.fullmatch("[1-9][123]", key):
        wanted = [f"N{key[0]}", "C5M" if key[0] == "5" else f"C{key[0]}"]
    elif key in ("5M1", "5M2", "5M3"):
        wanted = ["C5M"]
    return next((one for one in wanted if one in places and one in heavy), None)
