//! Comparison with records of a HISTORY and a CONFIG that DL_POLY wrote: the files of potassium
//! chloride in the test data of MDAnalysis.

use super::*;

const HISTORY: &str = "\
DL_POLY: Potassium Chloride Test Case                                   \n         \
2         3       216                    3                 2606\n\
timestep         1       216 2 3            0.005000            0.005000\n       \
18.6796195135        0.0000058913       -0.0000139999            \n        \
0.0000058913       18.6794658887       -0.0000016255            \n       \
-0.0000139999       -0.0000016255       18.6797229304            \n\
K+               1   39.098300    0.994000    0.000000                  \n    \
-7.595541651        -7.898808509        -7.861763110                \n     \
1.109901682        -1.500264697         4.752251711                \n    \
-2621.386432         1579.334443         1041.103241                \n";

const CELL: Cell = [
    [18.6796195135, 0.0000058913, -0.0000139999],
    [0.0000058913, 18.6794658887, -0.0000016255],
    [-0.0000139999, -0.0000016255, 18.6797229304],
];

const VECTORS: [[f64; 3]; 3] = [
    [-7.595541651, -7.898808509, -7.861763110],
    [1.109901682, -1.500264697, 4.752251711],
    [-2621.386432, 1579.334443, 1041.103241],
];

const POTASSIUM: Atom<'_> = Atom {
    id: 1,
    name: *b"K+      ",
    mass: 39.0983,
    charge: 0.994,
    vectors: &VECTORS,
};

const MOMENT: Moment<'_> = Moment {
    step: 1,
    dt: 0.005,
    time: 0.005,
    cell: Some(&CELL),
};

const TITLE: &str = "DL_POLY: Potassium Chloride Test Case";

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn config(atom: &Atom<'_>) -> String {
    let mut bytes = vec![0; atom_size(atom.vectors.len() - 1)];
    atom.put_config(&mut bytes);
    text(bytes)
}

#[test]
fn a_history_is_what_dl_poly_writes() {
    let mut bytes = history_head(TITLE, 2, 3, 216, 3).unwrap();
    bytes.extend(frame_head(2, 216, &MOMENT).unwrap());
    let start = bytes.len();
    bytes.resize(start + atom_size(2), 0);
    POTASSIUM.put_history(&mut bytes[start..]);
    assert_eq!(text(bytes), HISTORY);
    assert_eq!(POTASSIUM.check_history(), Ok(()));
}

#[test]
fn a_config_is_what_dl_poly_writes() {
    let cell = [[18.696, 0.0, 0.0], [0.0, 18.696, 0.0], [0.0, 0.0, 18.696]];
    let moment = Moment {
        step: 2000,
        dt: 0.005,
        time: 10.0,
        cell: Some(&cell),
    };
    let head = text(config_head("NaCl", 1, 216, &moment).unwrap());
    let lines: Vec<&str> = head.lines().collect();
    assert!(head.lines().all(|line| line.len() == 72) && head.len() == 5 * RECORD);
    assert_eq!(lines[0].trim_end(), "NaCl");
    assert_eq!(
        lines[1],
        "         1         1       216      2000   5.0000000E-03   1.0000000E+01"
    );
    let vector = "       18.6960000000        0.0000000000        0.0000000000            ";
    assert_eq!(lines[2], vector);
    let mut atom = POTASSIUM;
    atom.vectors = &VECTORS[..2];
    atom.name = *b"K+\0\0\0\0\0\0";
    let atoms = config(&atom);
    assert_eq!(
        atoms.split_once('\n').unwrap().0,
        format!("K+               1{:54}", "")
    );
    assert!(HISTORY.contains(&atoms[RECORD..]));
}

#[test]
fn no_cell_is_written_where_there_is_none_but_in_a_history() {
    let moment = Moment {
        cell: None,
        ..MOMENT
    };
    assert_eq!(config_head("", 0, 3, &moment).unwrap().len(), 2 * RECORD);
    let frame = text(frame_head(0, 3, &moment).unwrap());
    assert_eq!(frame.len(), 4 * RECORD);
    assert_eq!(frame.matches(" 0.0000000000 ").count(), 9);
}

#[test]
fn the_boundary_is_told_by_the_cell() {
    let diagonal = |a, b, c| [[a, 0.0, 0.0], [0.0, b, 0.0], [0.0, 0.0, c]];
    assert_eq!(imcon(None), Ok(0));
    assert_eq!(imcon(Some(&diagonal(5.0, 5.0, 5.0))), Ok(1));
    assert_eq!(imcon(Some(&diagonal(5.0, 6.0, 5.0))), Ok(2));
    assert_eq!(imcon(Some(&diagonal(-5.0, -5.0, -5.0))), Ok(3));
    assert_eq!(imcon(Some(&CELL)), Ok(3));
    for cell in [diagonal(5.0, 0.0, 5.0), diagonal(5.0, f64::NAN, 5.0)] {
        let reason = imcon(Some(&cell)).unwrap_err();
        assert!(reason.contains("span a volume"), "{reason}");
    }
}

#[test]
fn the_level_is_told_by_the_fields() {
    assert_eq!(
        [1, 3, 7].map(|bits| level(Fields::from_bits(bits))),
        [Ok(0), Ok(1), Ok(2)]
    );
    for (bits, reason) in [(5, "beside velocities"), (2, "without positions")] {
        assert!(level(Fields::from_bits(bits)).unwrap_err().contains(reason));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |change: fn(&mut Atom<'_>), expected: &str| {
        let mut atom = POTASSIUM;
        change(&mut atom);
        let reason = atom.check_history().unwrap_err();
        assert!(reason.contains(expected), "{reason}");
        let mut bytes = vec![0; atom_size(2)];
        atom.put_history(&mut bytes);
        assert!(
            bytes[LINE..]
                .iter()
                .step_by(RECORD)
                .all(|&byte| byte == b'\n')
        );
    };
    refused(|atom| atom.name = *b"        ", "found \"\"");
    refused(|atom| atom.name = *b"K +     ", "found \"K +\"");
    refused(|atom| atom.name = *b" K+     ", "found \" K+\"");
    refused(|atom| atom.name = *b"K\n      ", "found \"K\\n\"");
    refused(|atom| atom.name = *b"\xc3\xa4      ", "printable ASCII");
    refused(|atom| atom.id = 10_000_000_000, "found 10000000000");
    refused(|atom| atom.id = u64::MAX, "found 18446744073709551615");
    refused(|atom| atom.mass = 100_000.0, "the mass, 100000.0,");
    refused(|atom| atom.charge = -10_000.0, "the charge, -10000.0,");
    refused(|atom| atom.charge = f64::NAN, "the charge, NaN,");
    refused(
        |atom| atom.vectors = &[[0.0; 3], [0.0, f64::INFINITY, 0.0], [f64::NAN; 3]],
        "expected a finite velocity, found inf",
    );
}

#[test]
fn heads_refuse_what_does_not_fit() {
    let refused = |head: Result<Vec<u8>, String>, expected: &str| {
        let reason = head.unwrap_err();
        assert!(reason.contains(expected), "{reason}");
    };
    let long = "x".repeat(73);
    refused(history_head(&long, 0, 0, 1, 1), "up to 72 printable");
    refused(history_head("two\nlines", 0, 0, 1, 1), "two\\nlines");
    refused(history_head("", 0, 0, 1 << 40, 1), "1099511627776");
    refused(
        history_head("", 2, 0, 1, u64::MAX),
        "holds no 18446744073709551615 frames",
    );
    let moment = |step, time| Moment {
        step,
        time,
        ..MOMENT
    };
    refused(
        frame_head(0, 1, &moment(-1_000_000_000, 0.0)),
        "the step, -1000000000,",
    );
    refused(
        frame_head(0, 1, &moment(1, 1e13)),
        "the time, 10000000000000.0,",
    );
    refused(
        config_head("", 0, 1, &moment(1, f64::NAN)),
        "finite time, found NaN",
    );
    let cell = [[1e9, 0.0, 0.0], [0.0, 1e9, 0.0], [0.0, 0.0, 1e9]];
    let moment = Moment {
        cell: Some(&cell),
        ..MOMENT
    };
    refused(
        config_head("", 0, 1, &moment),
        "the cell vector, 1000000000.0,",
    );
}
