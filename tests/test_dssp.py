"""Tests of secondary structure against MDAnalysis, letter for letter, and of ideal chains."""

import gzip
import itertools
import shutil
import subprocess
import warnings
from pathlib import Path

import MDAnalysis
import mdtraj
import numpy as np
import pytest
from MDAnalysis.analysis import dssp as theirs_dssp
from MDAnalysisTests import datafiles
from MDAnalysisTests.datafiles import TPR, XTC

import paceline
from paceline.analysis import dssp
from paceline.analysis.dssp import DSSP
from paceline.errors import SelectionError, UnsupportedError

FOLDER = Path(datafiles.__file__).parent / "data" / "dssp"
#: Structures of the PDB, each with other features.
STRUCTURES = ["1bvyF", "3gfsA", "3l4rA"]


def assert_same(ours, theirs):
    for name in ("dssp", "dssp_ndarray", "resids"):
        np.testing.assert_array_equal(ours.results[name], theirs.results[name])
        assert ours.results[name].dtype == theirs.results[name].dtype
    assert len(np.unique(ours.results.dssp)) == 3


@pytest.mark.parametrize("name", STRUCTURES)
def test_letters_of_structures_are_those_of_mdanalysis(name):
    path = str(FOLDER / f"{name}.pdb.gz")
    ours = DSSP(paceline.Universe(path)).run(backend="serial")
    assert_same(ours, theirs_dssp.DSSP(MDAnalysis.Universe(path)).run())


@pytest.mark.parametrize("guess_hydrogens", [True, False])
@pytest.mark.parametrize("system", ["adk", "triclinic"])
def test_letters_of_trajectories_are_those_of_mdanalysis(system, guess_hydrogens, adk):
    files = adk if system == "adk" else (TPR, XTC)
    ours = DSSP(paceline.Universe(*files), guess_hydrogens).run(backend="serial")
    assert_same(ours, theirs_dssp.DSSP(MDAnalysis.Universe(*files), guess_hydrogens).run())


@pytest.mark.parametrize(
    "cell",
    [
        (46, 52, 57, 90, 90, 90),
        (16, 90, 90, 90, 90, 90),
        (60, 60, 60, 60, 60, 90),
        (55, 60, 65, 75, 100, 112),
        (1, 1, 1, 90, 90, 90),
    ],
    ids=str,
)
def test_letters_in_cells_that_parts_of_the_protein_leave(cell, adk, tmp_path):
    theirs = MDAnalysis.Universe(*adk)
    moved = str(tmp_path / "moved.trr")
    images = np.random.default_rng(2).integers(-1, 2, (len(theirs.residues), 3))
    images = np.repeat(images // (np.arange(3) + 1), 30, axis=0)[: len(theirs.residues)]
    with MDAnalysis.Writer(moved, len(theirs.atoms)) as writer:
        for ts in theirs.trajectory[:4]:
            ts.dimensions = np.array(cell) + (cell[0] > 1) * np.array([ts.frame / 4, 0, 0, 0, 0, 0])
            shift = images @ ts.triclinic_dimensions
            theirs.atoms.positions += shift[theirs.atoms.resindices]
            writer.write(theirs.atoms)
    files = adk.topology, moved
    ours = DSSP(paceline.Universe(*files)).run(backend="serial")
    assert_same(ours, theirs_dssp.DSSP(MDAnalysis.Universe(*files)).run())


def chain(tmp_path, phi, psi, n_residues=14, resname="ALA"):
    """Write an ideal backbone with these angles (degrees)."""
    # Length (Å), angle and dihedral of each bond, from N to CA, to C, and to the next N.
    bonds = [(1.33, 121.9, psi), (1.458, 121.7, 180.0), (1.525, 111.0, phi)]
    atoms = [np.array([0.0, 1.2, 0.0]), np.zeros(3), np.array([1.5, 0.0, 0.0])]

    def follow(a, b, c, length, angle, dihedral):
        angle, dihedral = np.radians([180 - angle, dihedral])
        along = (c - b) / np.linalg.norm(c - b)
        normal = np.cross(b - a, along)
        normal /= np.linalg.norm(normal)
        across = np.cross(normal, along)
        turned = np.cos(dihedral) * across + np.sin(dihedral) * normal
        return c + length * (np.cos(angle) * along + np.sin(angle) * turned)

    for bond in itertools.islice(itertools.cycle(bonds), 3 * n_residues):
        atoms.append(follow(*atoms[-3:], *bond))
    main = np.array(atoms).reshape(-1, 3, 3)
    oxygens = [follow(n, ca, c, 1.231, 120.5, psi + 180) for n, ca, c in main[:n_residues]]
    positions = np.concatenate([main[:n_residues], np.array(oxygens)[:, None]], axis=1)
    universe = MDAnalysis.Universe.empty(
        4 * n_residues,
        n_residues,
        atom_resindex=np.repeat(np.arange(n_residues), 4),
        trajectory=True,
    )
    universe.add_TopologyAttr("names", ["N", "CA", "C", "O"] * n_residues)
    universe.add_TopologyAttr("resnames", [resname] * n_residues)
    universe.add_TopologyAttr("resids", np.arange(1, n_residues + 1))
    universe.atoms.positions = positions.reshape(-1, 3)
    path = tmp_path / "chain.gro"
    universe.atoms.write(str(path))
    return str(path)


@pytest.mark.parametrize(
    ("angles", "letters"),
    [((-57, -47), "-HHHHHHHHHHHH-"), ((-49, -26), "-HHHHHHHHHHHH-"), ((-135, 135), "-" * 14)],
    ids=["alpha helix", "3-10 helix", "extended chain"],
)
def test_ideal_chains(angles, letters, tmp_path):
    found = DSSP(paceline.Universe(chain(tmp_path, *angles))).run(backend="serial").results
    assert "".join(found.dssp[0]) == letters
    np.testing.assert_array_equal(found.dssp_ndarray[0, :, 0], [one == "-" for one in letters])
    proline = DSSP(paceline.Universe(chain(tmp_path, *angles, resname="PRO"))).run(backend="serial")
    assert set(proline.results.dssp[0]) == {"-"}


def test_frames_that_were_left_out_have_no_letters(damaged):
    files, frames = damaged
    analysis = DSSP(paceline.Universe(*files)).run(on_error="skip", backend="serial")
    found = analysis.results
    assert set(found.dssp[frames].ravel()) == {""}
    assert not found.dssp_ndarray[frames].any()
    whole = np.setdiff1d(np.arange(98), frames)
    assert (found.dssp_ndarray[whole].sum(axis=2) >= 1).all()
    assert set(found.dssp[whole].ravel()) == {"-", "H", "E"}
    table = found.to_dataframe()
    assert table["helix (residues)"][frames].isna().all()
    assert table["structure"][0] == "".join(found.dssp[0])


def test_tables_and_figures(universe, tmp_path):
    from matplotlib import pyplot

    found = DSSP(universe).run(stop=5, backend="serial").results
    found.save(tmp_path / "dssp.csv")
    header, first = (tmp_path / "dssp.csv").read_text().splitlines()[-6:-4]
    assert header.split(",")[1:] == [
        *("time (ps)", "loop (residues)", "helix (residues)", "strand (residues)", "structure")
    ]
    assert first.endswith("".join(found.dssp[0]))
    ax = found.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time (ps)", "residue")
    (mesh,) = ax.collections
    np.testing.assert_array_equal(mesh.get_array().reshape(214, 5) == 1, (found.dssp == "H").T)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["loop", "helix", "strand"]
    pyplot.close(ax.figure)
    found.save_figure(tmp_path / "dssp.png")
    assert (tmp_path / "dssp.png").stat().st_size > 1000
    pyplot.close(DSSP(universe).run(stop=1, backend="serial").results.plot().figure)


@pytest.mark.parametrize("variant", [None, "dssp4"])
def test_fractions_of_residues_have_intervals(variant, universe, damaged):
    plain = DSSP(universe, variant=variant).run().results
    found = DSSP(universe, variant=variant, errors=True).run().results
    assert "fractions" not in plain
    np.testing.assert_array_equal(found.dssp, plain.dssp)
    letters = dssp.LETTERS if variant is None else dssp.DSSP_LETTERS
    wanted = np.stack([(found.dssp == letter).mean(axis=0) for letter in letters], axis=1)
    np.testing.assert_allclose(found.fractions, wanted)
    limits = found.fraction_intervals
    assert limits.shape == (*wanted.shape, 2)
    changes = (wanted > 0) & (wanted < 1)
    np.testing.assert_array_equal(np.isnan(limits[..., 0]), ~changes)
    assert (limits[changes][:, 0] < wanted[changes]).all()
    assert (limits[changes][:, 1] > wanted[changes]).all()
    helix = "helix (fraction of frames)" if variant is None else "α helix (fraction of frames)"
    profile = found.table.profile
    np.testing.assert_array_equal(np.stack(profile.limits_of(helix), 1), limits[:, 1])
    np.testing.assert_array_equal(profile.columns[helix], wanted[:, 1])
    table = DSSP(universe, variant=variant, errors=True).run(stop=9).further_tables()["residues"]
    np.testing.assert_array_equal(table.columns["residue"], np.arange(1, 215))
    assert list(table.columns)[:4] == ["residue", "name", *list(profile.columns)[1:3]]
    assert len(table.limits_of(helix)[0]) == 214
    # Frames that were left out do not count.
    system, frames = damaged
    some = DSSP(paceline.Universe(*system), variant=variant, errors=True).run(on_error="skip")
    kept = np.setdiff1d(np.arange(98), frames)
    of_kept = np.stack([(some.results.dssp[kept] == one).mean(axis=0) for one in letters], axis=1)
    np.testing.assert_allclose(some.results.fractions, of_kept)


def test_scripts_of_mdanalysis_run_natively(adk):
    from MDAnalysis.analysis.dssp import DSSP as Theirs

    for guess_hydrogens in (True, False):
        theirs = Theirs(MDAnalysis.Universe(*adk), guess_hydrogens)
        ours = DSSP.from_mdanalysis(Theirs(paceline.Universe(*adk), guess_hydrogens))
        assert_same(ours.run(backend="serial"), theirs.run())
    from paceline.mdanalysis.analyses import native_class

    assert native_class(Theirs) is DSSP


def test_every_path_of_the_package():
    import paceline.analysis.dssp.dssp as module
    from paceline.analysis.dssp.pydssp_numpy import assign

    assert module is dssp.dssp
    assert module.DSSP is DSSP
    assert dssp.translate is theirs_dssp.translate
    assert assign is theirs_dssp.assign


def test_what_lacks_is_named(universe, adk):
    with pytest.raises(SelectionError, match="at least 6 residues of a protein, found 5"):
        DSSP(universe.select_atoms("resid 3-7"))
    with pytest.raises(
        SelectionError, match=r"residues LEU 5, LEU 6: .*'O O1 OT1 OC1'.* found 0, 0"
    ):
        DSSP(universe.select_atoms("protein and not (resid 5 6 and name O)"))
    with pytest.raises(SelectionError, match=r"residue GLY 10: expected one hydrogen .* found 0"):
        DSSP(changed(adk, "resid 10 and name HN"), guess_hydrogens=False)
    with pytest.raises(SelectionError, match=r"residue PRO 9: .* none in PRO, found 1"):
        DSSP(changed(adk, "resid 9 and name HA", "HN"), guess_hydrogens=False)
    with pytest.raises(ValueError, match="N, CA, C and O"):
        DSSP(universe, heavyatom_names=("N", "CA", "C"))


def test_ends_of_chains_in_every_force_field(adk):
    plain = DSSP(paceline.Universe(*adk)).run(stop=2).results.dssp
    # Names in CHARMM, GROMOS and OPLS, and in Amber's force fields in GROMACS.
    for names in (["OT1", "OT2"], ["O1", "O2"], ["OC1", "OC2"], ["O", "OXT"]):
        universe = paceline.Universe(*adk)
        universe.select_atoms("name OT1 OT2").names = names
        assert (DSSP(universe).run(stop=2).results.dssp == plain).all()


def changed(files, selection, name="X"):
    universe = paceline.Universe(*files)
    universe.select_atoms(selection).names = name
    return universe


def test_a_position_that_is_no_number_is_an_error(adk, tmp_path):
    theirs = MDAnalysis.Universe(*adk)
    path = str(tmp_path / "broken.trr")
    with MDAnalysis.Writer(path, len(theirs.atoms)) as writer:
        for ts in theirs.trajectory[:3]:
            if ts.frame == 1:
                ts.positions[theirs.select_atoms("resid 7 and name CA").indices[0]] = np.nan
            writer.write(theirs.atoms)
    with pytest.raises(ValueError, match=r"frame 1: the hydrogen at N of residue 6 \(from 0\)"):
        DSSP(paceline.Universe(adk.topology, path)).run(backend="serial")


def letters_of_mdtraj(*files):
    """Return the letters of all frames, with paceline's letter for a blank, and the trajectory."""
    trajectory = mdtraj.load(*files[::-1], **({"top": files[0]} if len(files) > 1 else {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        atoms = MDAnalysis.Universe(files[0]).select_atoms("protein").indices
    protein = trajectory.atom_slice(atoms)
    found = mdtraj.compute_dssp(protein, simplified=False)
    return np.where(found == " ", "-", found), protein


@pytest.mark.parametrize(
    "name",
    [
        *("1bvyF", "2cviA", "3l4rA"),
        *(
            pytest.param(path.name[:-7], marks=pytest.mark.full)
            for path in sorted(FOLDER.glob("*.pdb.gz"))
            # Structures with incomplete residues are treated differently, and are skipped.
            if path.name[:-7] not in ("1mr1D_failing", "wrong_hydrogens")
        ),
    ],
)
def test_letters_of_dssp_are_those_of_mdtraj(name):
    path = str(FOLDER / f"{name}.pdb.gz")
    found = DSSP(paceline.Universe(path), variant="dssp2").run(backend="serial").results
    np.testing.assert_array_equal(found.dssp, letters_of_mdtraj(path)[0])
    onehot = [found.dssp == letter for letter in "-HBEGITS"]
    np.testing.assert_array_equal(found.dssp_ndarray, np.stack(onehot, axis=-1))


def test_letters_of_frames_are_those_of_mdtraj_but_for_rounding(universe, adk):
    found = DSSP(universe, variant="dssp2").run(backend="serial").results.dssp
    wanted, trajectory = letters_of_mdtraj(*adk)
    assert found.shape == wanted.shape == (98, 214)
    different = (found != wanted).any(axis=1)
    assert different.sum() == 1
    # DSSP rounds energies to 0.001 kcal/mol, and MDTraj does not. MDTraj's energies are in
    # kcal/mol.
    energies = [bonds.data for bonds in mdtraj.kabsch_sander(trajectory)]
    near = [((one < -0.5) & (one > -0.5005)).any() for one in energies]
    assert all(np.array(near)[different])
    assert 0 < sum(near) < 98


def test_letters_end_at_breaks_of_the_chain():
    path = str(FOLDER.parent / "1hvr.pdb")
    found = DSSP(paceline.Universe(path), variant="dssp2").run(backend="serial")
    wanted, _ = letters_of_mdtraj(path)
    n, _, c, _ = found._backbone
    lengths = np.linalg.norm(n.positions[1:] - c.positions[:-1], axis=1)
    breaks = np.flatnonzero(lengths > 2.5)
    assert len(breaks) == 3  # MDTraj recognises the break between the two chains
    different = np.flatnonzero(found.results.dssp[0] != wanted[0])
    assert len(different) == 6
    assert (np.abs(different[:, None] - breaks).min(axis=1) <= 2).all()
    assert set(wanted[0, different]) == {"S"}
    assert set(found.results.dssp[0, different]) == {"-"}


#: Letters of mkdssp 4.2.2 for 3hklA, with paceline's letter for a blank.
OF_MKDSSP = (
    "-EEEE----SSSTTTSPTT--EEEETTSSSHHHHHHHHHHHHHHHHTTS-TTTHHHHHHHHHHHHTPBBPSSSS--BPPB"
    "PHHHHHIIIIIITTTTHHHHHHHHHHHHHHHT---PPPPPGGGSPPTTT-TTSSBPPTTT-"
)


def test_letters_of_dssp4_are_those_of_the_program(tmp_path):
    path = FOLDER / "3hklA.pdb.gz"
    found = DSSP(paceline.Universe(path), variant="dssp4").run(backend="serial").results
    assert "".join(found.dssp[0]) == OF_MKDSSP
    assert set(OF_MKDSSP) == set("-HBEGITSP")
    np.testing.assert_array_equal(
        found.dssp_ndarray[0].argmax(axis=1), ["-HBEGITSP".index(one) for one in OF_MKDSSP]
    )
    if shutil.which("mkdssp") is None:
        return
    header = f"HEADER    {'PROTEIN':<40}01-JAN-00   1ABC\n"
    (tmp_path / "in.pdb").write_text(header + gzip.decompress(path.read_bytes()).decode())
    command = ["mkdssp", "--quiet", "--output-format", "dssp", "in.pdb", "out.dssp"]
    subprocess.run(command, cwd=tmp_path, check=True)
    lines = (tmp_path / "out.dssp").read_text().partition("  #  RESIDUE")[2].splitlines()[1:]
    letters = "".join(line[16] for line in lines if line[13] != "!")
    assert letters.replace(" ", "-") == "".join(found.dssp[0])


@pytest.mark.parametrize(
    ("angles", "dssp2", "dssp4"),
    [
        ((-57, -47), "-HHHHHHHHHHHH-", None),
        ((-49, -26), "-GGGGGGGGGGGG-", None),
        ((-57, -70), "-IIIIIIIIIIII-", None),
        ((-135, 135), "-" * 14, None),
        ((-75, 145), "-" * 14, "-PPPPPPPPPPPP-"),
    ],
    ids=["alpha helix", "3-10 helix", "pi helix", "extended chain", "polyproline helix"],
)
def test_letters_of_ideal_chains(angles, dssp2, dssp4, tmp_path):
    path = chain(tmp_path, *angles)
    for variant, wanted in (("dssp2", dssp2), ("dssp4", dssp4 or dssp2)):
        found = DSSP(paceline.Universe(path), variant=variant).run(backend="serial").results
        assert "".join(found.dssp[0]) == wanted


@pytest.mark.parametrize("cell", [(46, 52, 57, 90, 90, 90), (60, 60, 60, 60, 60, 90)], ids=str)
def test_letters_of_dssp_in_cells_that_parts_of_the_protein_leave(cell, adk, tmp_path):
    theirs = MDAnalysis.Universe(*adk)
    images = np.repeat(np.random.default_rng(3).integers(-1, 2, (9, 3)), 26, axis=0)
    found = []
    for name, moved in (("whole", 0), ("moved", 1)):
        path = str(tmp_path / f"{name}.trr")
        with MDAnalysis.Writer(path, len(theirs.atoms)) as writer:
            for ts in theirs.trajectory[:3]:
                ts.dimensions = np.array(cell) * (1.5, 1.5, 1.5, 1, 1, 1)
                shift = moved * images[: len(theirs.residues)] @ ts.triclinic_dimensions
                theirs.atoms.positions += shift[theirs.atoms.resindices]
                writer.write(theirs.atoms)
        protein = paceline.Universe(adk.topology, path)
        found.append(DSSP(protein, variant="dssp4").run(backend="serial").results.dssp)
    plain = DSSP(paceline.Universe(*adk), variant="dssp4").run(stop=3, backend="serial").results
    np.testing.assert_array_equal(found[0], plain.dssp)
    np.testing.assert_array_equal(found[1], plain.dssp)


def test_tables_of_letters(damaged, tmp_path):
    from matplotlib import pyplot

    files, frames = damaged
    analysis = DSSP(paceline.Universe(*files), variant="dssp4").run(
        on_error="skip", backend="serial"
    )
    found = analysis.results
    assert set(found.dssp[frames].ravel()) == {""}
    assert not found.dssp_ndarray[frames].any()
    assert found.dssp_ndarray.shape == (98, 214, 9)
    table = found.to_dataframe()
    assert table["turn (residues)"][frames].isna().all()
    assert table["turn (residues)"][0] == (found.dssp[0] == "T").sum() > 0
    assert table["structure"][0] == "".join(found.dssp[0])
    assert analysis.parameters()["variant"] == "dssp4"
    ax = found.plot()
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names[:3] == ["loop", "α helix", "bridge"]
    pyplot.close(ax.figure)


def test_variants_that_there_are_not_are_refused(universe):
    with pytest.raises(ValueError, match="variant must be None, 'dssp2' or 'dssp4', not 'dssp3'"):
        DSSP(universe, variant="dssp3")
    with pytest.raises(UnsupportedError, match="places hydrogens as DSSP does"):
        DSSP(universe, False, variant="dssp2")


def test_letters_of_positions_that_are_no_numbers_are_an_error(adk, tmp_path):
    theirs = MDAnalysis.Universe(*adk)
    path = str(tmp_path / "broken.trr")
    with MDAnalysis.Writer(path, len(theirs.atoms)) as writer:
        for ts in theirs.trajectory[:3]:
            if ts.frame == 1:
                ts.positions[theirs.select_atoms("resid 7 and name CA").indices[0]] = np.nan
            writer.write(theirs.atoms)
    with pytest.raises(ValueError, match=r"frame 1: the backbone of residue 6 \(from 0\) has pos"):
        DSSP(paceline.Universe(adk.topology, path), variant="dssp4").run(backend="serial")


def test_letters_of_the_command(adk, universe, run, tmp_path):
    run("dssp", *adk, "--variant", "dssp4", "--end", 3, "-o", tmp_path / "dssp.csv")
    wanted = DSSP(universe, variant="dssp4").run(stop=3).results.dssp
    lines = [one for one in (tmp_path / "dssp.csv").read_text().splitlines() if one[0] != "#"]
    assert [line.split(",")[-1] for line in lines[1:4]] == ["".join(one) for one in wanted]
