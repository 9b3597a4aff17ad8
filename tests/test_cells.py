"""Tests of cells with any orientation and boundaries: images are those of the simulation."""

import itertools
import warnings

import h5py
import MDAnalysis
import numpy as np
import pytest
from helpers.charmm_dcd import shape_matrix, write_dcd
from helpers.h5md_files import write_simple
from helpers.lammps_files import write
from MDAnalysis.lib.formats.libmdaxdr import TRRFile, XTCFile
from MDAnalysisTests import datafiles
from scipy.spatial.transform import Rotation

import paceline
from paceline.analysis.align import AlignTraj
from paceline.analysis.contacts import ContactMap
from paceline.analysis.distances import AtomicDistances
from paceline.analysis.dssp import DSSP
from paceline.analysis.hydrogenbonds import HydrogenBondAnalysis
from paceline.analysis.lineardensity import LinearDensity
from paceline.analysis.msd import EinsteinMSD
from paceline.analysis.order import OrderParameter
from paceline.analysis.rdf import InterRDF, InterRDF_s
from paceline.analysis.rms import RMSD
from paceline.analysis.sasa import SASA
from paceline.errors import PacelineWarning, UnwritableError
from paceline.transform import center, fit, nojump, unwrap, wrap

FCC = np.array([[0.0, 10, 10], [10, 0, 10], [10, 10, 0]])
#: Two atoms that are one cell vector and 0.5 Å apart.
APART = np.array([[1.0, 2, 3], [1.5, 12, 13]])
pytestmark = pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")


def two_atoms(path):
    """Return a Universe of two atoms, without a topology."""
    return paceline.Universe(MDAnalysis.Universe.empty(2, trajectory=True)._topology, str(path))


def distance(path, **options):
    """Return the distance between two atoms in the first frame, Å."""
    universe = two_atoms(path)
    first, second = universe.atoms[:1], universe.atoms[1:]
    return float(AtomicDistances(first, second, **options).run(stop=1).results.distances[0, 0])


def write_xdr(path, positions, box, *, velocities=None):
    """Write frames (Å) with a box in any orientation, like GROMACS."""
    positions = np.asarray(positions, np.float32) / 10
    box = np.asarray(box, np.float32) / 10
    with (TRRFile if path.suffix == ".trr" else XTCFile)(str(path), "w") as file:
        for k, frame in enumerate(positions):
            own = box if box.ndim == 2 else box[k]
            if path.suffix == ".trr":
                v = None if velocities is None else np.asarray(velocities[k], np.float32) / 10
                file.write(frame, v, None, own, k, float(k), 0.0, len(frame))
            else:
                file.write(frame, own, k, float(k), 1000.0)
    return path


def history(path, positions, vectors, imcon=3):
    """Write one frame of a HISTORY."""
    lines = ["title", f"{0:10d}{imcon:10d}{len(positions):10d}{1:21d}{len(positions) * 2 + 6:21d}"]
    lines.append(f"timestep{0:10d}{len(positions):10d}{0:2d}{imcon:2d}{0.001:20.6f}{0.0:20.6f}")
    lines += ["".join(f"{x:20.10f}" for x in vector) for vector in vectors]
    for k, x in enumerate(positions):
        lines.append(f"{'Ar':8}{k + 1:10d}{1.0:12.6f}{0.0:12.6f}{0.0:12.6f}")
        lines.append("".join(f"{value:20.10f}" for value in x))
    path.write_text("".join(f"{line:72}\n" for line in lines))
    return path


def dump(path, frames, bounds, *, boundary="pp pp pp", columns="x y z"):
    """Write a LAMMPS dump with the positions of each frame, and the bounds of its cell."""
    text = ""
    for k, (frame, rows) in enumerate(zip(frames, bounds, strict=True)):
        text += f"ITEM: TIMESTEP\n{k}\nITEM: NUMBER OF ATOMS\n{len(frame)}\n"
        text += f"ITEM: BOX BOUNDS {boundary}\n"
        text += "".join(" ".join(f"{x:.9g}" for x in row) + "\n" for row in rows)
        text += f"ITEM: ATOMS id type {columns}\n"
        text += "".join(
            f"{i + 1} 1 " + " ".join(f"{x:.9g}" for x in atom) + "\n"
            for i, atom in enumerate(frame)
        )
    return write(path, text)


@pytest.mark.parametrize("ending", [".trr", ".xtc"])
def test_a_cell_of_any_orientation(tmp_path, ending):
    path = write_xdr(tmp_path / f"fcc{ending}", [APART], FCC)
    assert distance(path) == pytest.approx(0.5, abs=2e-3)
    universe = two_atoms(path)
    assert universe.dimensions == pytest.approx([14.142, 14.142, 14.142, 60, 60, 60], abs=1e-3)
    (block,) = paceline.open(path).blocks()
    np.testing.assert_allclose(block.cell_vectors[0], FCC, atol=1e-6)
    assert block.periodic.all()
    assert not block.cell_origins.any()


def test_a_cell_of_any_orientation_in_h5md(tmp_path):
    only = {"velocity": None, "force": None, "step": np.array([0]), "time": np.array([0.0])}
    path = write_simple(
        tmp_path / "fcc.h5md", position=np.float32([APART]), edges=FCC[np.newaxis], **only
    )
    assert distance(path) == pytest.approx(0.5, abs=1e-4)


def test_a_cell_of_any_orientation_in_dl_poly(tmp_path):
    path = history(tmp_path / "HISTORY", APART, FCC)
    assert distance(path) == pytest.approx(0.5, abs=1e-4)


def test_a_hexagonal_cell_of_charmm(tmp_path):
    matrix = shape_matrix([30, 30, 40], [90, 90, 120])
    path = write_dcd(tmp_path / "hexagonal.dcd", 36, [matrix])
    xx, xy, yy, xz, yz, zz = matrix
    vectors = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    (block,) = paceline.open(path).blocks()
    np.testing.assert_allclose(block.cell_vectors[0], vectors, atol=1e-5)
    atoms = np.array([[1.0, 2, 3], np.array([1.5, 2, 3]) + vectors[0]])
    assert np.linalg.norm(atoms[1] - atoms[0]) > 20
    columns = np.concatenate([atoms.T]).astype("<f4")
    data = path.read_bytes()
    for axis in columns:
        data = data.replace(np.array([0.5, 1.5], "<f4").tobytes(), axis.tobytes(), 1)
    path.write_bytes(data)
    assert distance(path) == pytest.approx(0.5, abs=1e-4)


def test_info_shows_what_lengths_and_angles_do_not(tmp_path, run):
    path = write_xdr(tmp_path / "fcc.trr", [APART], FCC)
    assert "; vectors 0 10 10, 10 0 10, 10 10 0 Å" in run("info", path)[1]
    slab = dump(tmp_path / "slab.lammpstrj", [SLAB_ATOMS], [BOX], boundary="pp pp ff")
    assert "20 20 20 90 90 90; periodic vectors: a, b" in run("info", slab)[1]
    plain = write_xdr(tmp_path / "plain.trr", [APART], np.diag([30.0, 31, 32]))
    assert "30 31 32 90 90 90\n" in run("info", plain)[1]


def test_noise_in_a_box_is_not_an_orientation(tmp_path):
    box = np.diag([30.0, 31, 32])
    plain = write_xdr(tmp_path / "plain.trr", [APART], box)
    noisy = write_xdr(tmp_path / "noisy.trr", [APART], box + 2e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        assert distance(noisy) == distance(plain)


def test_a_box_is_copied_as_it_is(tmp_path):
    path = write_xdr(tmp_path / "fcc.trr", [APART, APART + 1], FCC)
    for ending in (".trr", ".xtc", ".h5md"):
        made = tmp_path / f"copy{ending}"
        with warnings.catch_warnings():
            warnings.simplefilter("error", PacelineWarning)
            paceline.Write(two_atoms(path).atoms, made).run()
        assert distance(made) == pytest.approx(0.5, abs=2e-3)
        (block,) = paceline.open(made).blocks()
        np.testing.assert_allclose(block.cell_vectors, [FCC, FCC], atol=1e-5)
    with TRRFile(str(tmp_path / "copy.trr")) as file:
        np.testing.assert_allclose(file.read().box * 10, FCC, atol=1e-6)


@pytest.mark.parametrize("ending", [".dcd", ".nc"])
def test_a_turned_cell_is_left_out_where_a_format_cannot_hold_it(tmp_path, ending):
    atoms = two_atoms(write_xdr(tmp_path / "fcc.trr", [APART], FCC)).atoms
    path = tmp_path / f"without{ending}"
    with pytest.warns(PacelineWarning, match="cannot store a cell that is turned: cells are left"):
        paceline.Write(atoms, path).run()
    assert two_atoms(path).dimensions is None
    kept = tmp_path / f"kept{ending}"
    with warnings.catch_warnings():
        warnings.simplefilter("error", PacelineWarning)
        paceline.Write(atoms, kept, keep_cell=True).run()
    assert two_atoms(kept).dimensions == pytest.approx(atoms.dimensions, abs=1e-4)


def test_a_later_frame_with_a_turned_cell_is_refused(tmp_path):
    boxes = np.stack([np.diag([20.0, 20, 20]), FCC])
    atoms = two_atoms(write_xdr(tmp_path / "both.trr", [APART, APART], boxes)).atoms
    with pytest.raises(UnwritableError, match="found a cell that is turned"):
        paceline.Write(atoms, tmp_path / "both.dcd").run()
    assert not (tmp_path / "both.dcd").exists()


SLAB_ATOMS = [[5.0, 5, 0.5], [5, 5, 19.5]]
BOX = [[0.0, 20.0]] * 3


@pytest.mark.parametrize(
    ("boundary", "expected"),
    [
        *(("pp pp pp", 1.0), ("ff ff pp", 1.0), ("ff pp pp", 1.0)),
        *(("ff ff ff", 19.0), ("ss ss ss", 19.0), ("mm mm mm", 19.0)),
        *(("pp pp ff", 19.0), ("pp pp fs", 19.0)),
    ],
)
def test_boundaries_of_lammps(tmp_path, boundary, expected):
    path = dump(tmp_path / "slab.lammpstrj", [SLAB_ATOMS], [BOX], boundary=boundary)
    assert distance(path) == pytest.approx(expected, abs=1e-4)
    (block,) = paceline.open(path).blocks()
    assert block.periodic[0].tolist() == [word == "pp" for word in boundary.split()]
    assert block.dimensions[0].tolist() == [20, 20, 20, 90, 90, 90]


def test_a_slab_of_dl_poly(tmp_path):
    box = np.diag([20.0, 20, 20])
    assert distance(history(tmp_path / "HISTORY", SLAB_ATOMS, box, 6)) == pytest.approx(19)
    assert distance(history(tmp_path / "HISTORY", SLAB_ATOMS, box, 2)) == pytest.approx(1)


def test_a_slab_of_h5md(tmp_path):
    slab = dump(tmp_path / "slab.lammpstrj", [SLAB_ATOMS], [BOX], boundary="pp pp ff")
    atoms = two_atoms(slab).atoms
    paceline.Write(atoms, tmp_path / "slab.h5md").run()
    assert distance(tmp_path / "slab.h5md") == pytest.approx(19, abs=1e-4)
    with h5py.File(tmp_path / "slab.h5md") as file:
        (group,) = file["particles"].values()
        boundary = group["box"].attrs["boundary"]
        assert [str(one) for one in boundary] == ["periodic", "periodic", "none"]
    for ending in (".xtc", ".trr", ".dcd", ".nc"):
        with pytest.warns(PacelineWarning, match="not periodic along all vectors"):
            paceline.Write(atoms, tmp_path / f"slab{ending}").run()
        assert two_atoms(tmp_path / f"slab{ending}").dimensions is None


def test_g_of_r_in_a_slab(tmp_path):
    """Compare with distances to all images along x and y, and the volume of the file's cell."""
    rng = np.random.default_rng(3)
    frame = rng.uniform(0, 20, (60, 3))
    path = dump(tmp_path / "slab.lammpstrj", [frame], [BOX], boundary="pp pp ff")
    universe = paceline.Universe(
        MDAnalysis.Universe.empty(60, trajectory=True)._topology, str(path)
    )
    found = InterRDF(universe.atoms[:30], universe.atoms[30:], nbins=20, range=(0.5, 9)).run()
    d = frame[:30, None] - frame[None, 30:]
    d[..., :2] -= 20 * np.rint(d[..., :2] / 20)
    counts, _ = np.histogram(np.linalg.norm(d, axis=-1), bins=20, range=(0.5, 9))
    np.testing.assert_array_equal(found.results.count, counts)
    shells = 4 / 3 * np.pi * np.diff(found.results.edges**3)
    np.testing.assert_allclose(found.results.rdf, counts / shells * 8000 / 900, rtol=1e-5)


@pytest.mark.parametrize("columns", ["x y z", "xu yu zu", "xs ys zs"])
def test_atoms_at_rest_while_a_barostat_moves_the_corner(tmp_path, columns):
    rng = np.random.default_rng(4)
    frame = rng.uniform(5, 15, (20, 3))
    by = rng.uniform(-1, 1, (6, 1))
    bounds = [np.array([[-move, 20.0 + move]] * 3) for move in by[:, 0]]
    frames = [
        (frame - rows[:, 0]) / np.diff(rows, axis=1)[:, 0] if columns == "xs ys zs" else frame
        for rows in bounds
    ]
    path = dump(tmp_path / "npt.lammpstrj", frames, bounds, columns=columns)
    universe = paceline.Universe(
        MDAnalysis.Universe.empty(20, trajectory=True)._topology, str(path)
    )
    msd = EinsteinMSD(universe.atoms, unwrap=None).run()
    assert msd.results.timeseries.max() < 1e-9
    origins = next(paceline.open(path).blocks()).cell_origins
    np.testing.assert_allclose(origins, [rows[:, 0] - bounds[0][:, 0] for rows in bounds])
    # An atom at rest is wrapped to the same position in all frames.
    wrapped = AtomicDistances(universe.atoms[:1], universe.atoms[1:2], pbc=False)
    still = wrapped.run(transforms=[wrap()]).results.distances
    np.testing.assert_allclose(still, np.broadcast_to(still[0], still.shape), atol=1e-5)


def shortest(vectors, d, most=12):
    """Return the length of the shortest image of a difference, Å, by brute force."""
    numbers = np.array(list(itertools.product(range(-most, most + 1), repeat=3)))
    return np.linalg.norm(d + numbers @ vectors, axis=1).min()


SKEWED = [
    np.array([[10.0, 0, 0], [29, 10, 0], [-25, 12, 10]]),
    np.array([[40.0, 0, 0], [17, 4, 0], [3, 1, 30]]),
    np.array([[12.0, 0, 0], [5, 11, 0], [30, -25, 9]]),
]


@pytest.mark.parametrize("vectors", SKEWED)
def test_nearest_images_of_very_skewed_cells(tmp_path, vectors):
    rng = np.random.default_rng(6)
    frame = rng.uniform(0, 1, (40, 3)) @ vectors
    path = write_xdr(tmp_path / "skewed.trr", [frame], vectors)
    universe = paceline.Universe(
        MDAnalysis.Universe.empty(40, trajectory=True)._topology, str(path)
    )
    first, second = universe.atoms[:20], universe.atoms[20:]
    d = (frame[20:] - frame[:20]).astype(np.float32)
    expected = np.array([shortest(vectors, one) for one in d])
    found = AtomicDistances(first, second).run().results.distances[0]
    np.testing.assert_allclose(found, expected, atol=1e-3)
    pairs = frame[20:] - frame[:20, None]
    right = np.array([shortest(vectors, one, 8) for one in pairs.reshape(-1, 3)])
    counts, _ = np.histogram(right, bins=10, range=(0.0, 8.0))
    rdf = InterRDF(first, second, nbins=10, range=(0.0, 8.0)).run()
    # Rounding to single precision in a file may move a distance into the next bin.
    assert np.abs(np.cumsum(rdf.results.count) - np.cumsum(counts)).max() <= 1


@pytest.fixture(scope="module")
def water():
    return paceline.Universe(datafiles.TPR, datafiles.XTC)


def fitted(universe):
    return [unwrap("protein"), fit("protein and name CA")]


CASES = {
    "hydrogen bonds": lambda u: (
        HydrogenBondAnalysis(u, between=["protein", "resname SOL"]),
        lambda a: a.count_by_time(),
    ),
    "g(r)": lambda u: (
        InterRDF(*[u.select_atoms("name OW")[::7]] * 2, nbins=50, range=(0.1, 12)),
        lambda a: a.results.count,
    ),
    "g(r) of sites": lambda u: (
        InterRDF_s(u, [[u.select_atoms("name CA")[:8], u.select_atoms("name OW")[::9]]]),
        lambda a: np.concatenate([np.ravel(one) for one in a.results.count]),
    ),
    "contacts": lambda u: (
        ContactMap(u.select_atoms("protein"), cutoff=4.5),
        lambda a: a.results.counts,
    ),
    "surface": lambda u: (SASA(u.select_atoms("protein")), lambda a: a.results.total),
    "distances": lambda u: (
        AtomicDistances(u.select_atoms("name CA"), u.select_atoms("name OW")[:214]),
        lambda a: a.results.distances,
    ),
    "letters": lambda u: (
        DSSP(u.select_atoms("protein"), variant="dssp4"),
        lambda a: a.results.dssp == "H",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rotation_changes_no_distance(water, name):
    analysis, values = CASES[name](water)
    plain = np.array(values(analysis.run(stop=2)), dtype=float)
    turned = np.array(values(analysis.run(stop=2, transforms=fitted(water))), dtype=float)
    np.testing.assert_allclose(turned, plain, rtol=2e-4, atol=2e-3)
    if plain.dtype.kind == "i" or name in ("hydrogen bonds", "g(r)", "letters"):
        np.testing.assert_array_equal(turned, plain)


@pytest.mark.parametrize("last", [wrap, nojump, lambda: center("protein", wrap=True)])
def test_what_follows_a_rotation_finds_images(water, last):
    ow = water.select_atoms("name OW")[::7]
    rdf = InterRDF(ow, ow, nbins=50, range=(0.1, 12))
    plain = rdf.run(stop=2).results.count.copy()
    turned = rdf.run(stop=2, transforms=[*fitted(water), last()]).results.count
    np.testing.assert_allclose(turned, plain, atol=1)


def test_updating_groups_after_a_rotation(water):
    group = water.select_atoms("name OW and around 3.5 protein", updating=True)
    zone = water.select_atoms("name OW and sphzone 8 (resid 50 and name CA)", updating=True)
    for one in (group, zone):
        rdf = InterRDF(water.select_atoms("protein and name CA"), one, nbins=20, range=(0.1, 10))
        plain = rdf.run(stop=2).results.count.copy()
        turned = rdf.run(stop=2, transforms=fitted(water)).results.count
        np.testing.assert_allclose(turned, plain, atol=1)
        assert plain.sum() > 100


@pytest.mark.parametrize("ending", [".xtc", ".trr", ".h5md"])
def test_fitted_files_keep_their_cells(water, tmp_path, ending):
    path = tmp_path / f"fitted{ending}"
    paceline.Write(water.atoms, path).run(stop=2, transforms=fitted(water))
    again = paceline.Universe(datafiles.TPR, str(path))
    ow = slice(None, None, 7)
    rdfs = [
        InterRDF(u.select_atoms("name OW")[ow], u.select_atoms("name OW")[ow], range=(0.1, 12))
        .run(stop=2)
        .results.count
        for u in (water, again)
    ]
    assert abs(rdfs[0] - rdfs[1]).max() <= (2 if ending == ".h5md" else 60)
    assert rdfs[1][:13].sum() == 0  # below 2.1 Å


def test_equal_bits_in_turned_cells(water):
    ow = water.select_atoms("name OW")[::7]
    rdf, rmsd = InterRDF(ow, ow, range=(0.1, 12)), RMSD(water, select="name CA")
    found = []
    for options in ({"backend": "serial"}, {"n_workers": 2}, {"n_workers": 3, "block_frames": 1}):
        paceline.run([rdf, rmsd], stop=6, transforms=[*fitted(water), nojump()], **options)
        found.append((rdf.results.rdf.copy(), rmsd.results.rmsd.copy()))
    for one in found[1:]:
        np.testing.assert_array_equal(one[0], found[0][0])
        np.testing.assert_array_equal(one[1], found[0][1])


@pytest.mark.parametrize("scheme", ["tor", "lattice"])
def test_displacements_in_a_turned_cell(tmp_path, scheme):
    rng = np.random.default_rng(8)
    cell = np.array([[20.0, 0, 0], [6, 21, 0], [-5, 4, 19]])
    walk = 10 + np.cumsum(rng.normal(0, 1.5, (40, 25, 3)), axis=0)
    turn = Rotation.from_rotvec([0.3, -0.8, 0.5]).as_matrix()
    found = []
    for name, rotation in (("plain", np.eye(3)), ("turned", turn)):
        vectors = cell @ rotation
        positions = walk @ rotation
        inside = positions @ np.linalg.inv(vectors)
        path = write_xdr(tmp_path / f"{name}.trr", (inside - np.floor(inside)) @ vectors, vectors)
        universe = paceline.Universe(
            MDAnalysis.Universe.empty(25, trajectory=True)._topology, str(path)
        )
        msd = EinsteinMSD(universe.atoms, unwrap=scheme).run()
        found.append(msd.results.timeseries)
        plain = EinsteinMSD(universe.atoms, unwrap=None)
        moved = plain.run(transforms=[nojump()]).results.timeseries
        np.testing.assert_allclose(moved, found[0], rtol=1e-4)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4)


def test_velocities_turn_with_their_frames(tmp_path):
    rng = np.random.default_rng(9)
    body, speeds = rng.normal(0, 5, (12, 3)), rng.normal(0, 1, (12, 3))
    turns = [Rotation.from_rotvec([0, 0.4 * k, 0.2 * k]).as_matrix() for k in range(4)]
    path = write_xdr(
        tmp_path / "v.trr",
        [body @ turn + 20 for turn in turns],
        np.diag([40.0] * 3),
        velocities=[speeds @ turn for turn in turns],
    )
    universe = paceline.Universe(
        MDAnalysis.Universe.empty(12, trajectory=True)._topology, str(path)
    )
    universe.add_TopologyAttr("masses", np.ones(12))
    made = tmp_path / "aligned.trr"
    AlignTraj(universe, universe, filename=str(made)).run()
    for frame in paceline.open(made):
        np.testing.assert_allclose(frame.velocities, speeds, atol=1e-4)
    (block,) = paceline.open(made).blocks()
    for k, turn in enumerate(turns):
        np.testing.assert_allclose(block.cell_vectors[k], 40 * turn.T, atol=1e-3)


def test_a_density_is_along_the_axes_of_the_upright_cell(water):
    density = LinearDensity(water.select_atoms("name OW"), binsize=2)
    plain = [density.run(stop=2).results[axis].mass_density.copy() for axis in "xyz"]
    turn = [unwrap("protein"), fit("protein and name CA")]
    for axis, expected in zip("xyz", plain, strict=True):
        found = density.run(stop=2, transforms=turn).results[axis].mass_density
        # The corner of the cell moves with the atoms; by rounding, some atoms move to the next bin.
        np.testing.assert_allclose(found, expected, atol=2e-3)


def test_an_order_parameter_is_along_an_axis_of_the_file(tmp_path):
    """Check an axis of the file, also with bonds across the faces of a rotated cell."""
    turn = Rotation.from_rotvec([0.5, 0.2, -0.7]).as_matrix()
    cell = np.diag([20.0, 22, 24]) @ turn
    bond = np.array([0.6, -0.5, 0.9])
    positions = np.array([[1.0, 2, 3], np.array([1.0, 2, 3]) + bond + cell[1]])
    path = write_xdr(tmp_path / "bond.trr", [positions], cell)
    universe = two_atoms(path)
    order = OrderParameter(universe.atoms[:1], universe.atoms[1:], axis="z").run()
    expected = 1.5 * (bond[2] / np.linalg.norm(bond)) ** 2 - 0.5
    assert order.results.timeseries[0, 0] == pytest.approx(expected, abs=1e-3)
