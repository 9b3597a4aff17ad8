//! Tests that numbers parsed by columns have the same bits as numbers parsed word by word.

use paceline_formats::fortran_numbers::{g20_10, take_real, three_g20_10};

use crate::values::{Random, all};

/// Characters that may be in columns, and some that may not.
const CHARACTERS: &[u8] = b"      00123456789..--+EED\t\r\nx\0\xff";

/// Return the bits of the three words of a line, if they are numbers and nothing follows them.
fn by_words(mut line: &[u8]) -> Option<[u64; 3]> {
    let mut next = || take_real(&mut line).map(f64::to_bits);
    let found = [next()?, next()?, next()?];
    line.trim_ascii().is_empty().then_some(found)
}

fn by_columns(line: &[u8]) -> Option<[u64; 3]> {
    three_g20_10(line).map(|found| found.map(f64::to_bits))
}

/// Return lines of numbers of all magnitudes, and whether the numbers are typical of simulations.
fn lines() -> Vec<(Vec<u8>, bool)> {
    let mut random = Random(11);
    let values = all(20_000).into_iter().filter(|value| value.abs() < 1e99);
    let values: Vec<f64> = values.collect();
    let line = |three: &[f64]| {
        let mut line: Vec<u8> = three.iter().flat_map(|&value| g20_10(value)).collect();
        line.resize(60 + random.below(20), b' ');
        let usual = |value: &f64| *value == 0.0 || (1e-12..1e30).contains(&value.abs());
        (line, three.iter().all(usual))
    };
    values.windows(3).map(line).collect()
}

#[test]
fn columns_are_read_as_words_are() {
    for (line, usual) in lines() {
        match by_columns(&line) {
            None => assert!(!usual, "{}", line.escape_ascii()),
            found => assert_eq!(found, by_words(&line), "{}", line.escape_ascii()),
        }
    }
}

#[test]
fn what_columns_seldom_hold_is_left_to_words() {
    let mut random = Random(12);
    let (mut n_found, mut n_left) = (0, 0);
    for (line, _) in lines() {
        for n_changes in 1..=3 {
            let mut line = line.clone();
            for _ in 0..n_changes {
                let at = random.below(line.len());
                line[at] = CHARACTERS[random.below(CHARACTERS.len())];
            }
            match by_columns(&line) {
                None => n_left += 1,
                found => {
                    n_found += 1;
                    assert_eq!(found, by_words(&line), "{}", line.escape_ascii());
                }
            }
        }
    }
    assert!(n_found > 5_000 && n_left > 50_000, "{n_found}, {n_left}");
}

#[test]
fn columns_at_their_edges() {
    for (number, expected) in [
        ("     1.234567890    ", Some(1.23456789)),
        ("    -1.234567890    ", Some(-1.23456789)),
        ("    0.1234567890    ", Some(0.123456789)),
        ("   -0.1234567890    ", Some(-0.123456789)),
        ("    0.0000000000    ", Some(0.0)),
        ("   -0.0000000000    ", Some(-0.0)),
        ("     1234567890.    ", Some(1234567890.0)),
        ("    -9999999999.    ", Some(-9999999999.0)),
        ("    0.1234567890E+32", Some(0.123456789e32)),
        ("    0.1234567890E-12", Some(0.123456789e-12)),
        ("    0.1234567890E+33", None),
        ("    0.1234567890E-13", None),
        ("   -0.1234567890E-09", Some(-0.123456789e-9)),
        ("    0.1234567890D-09", None),
        ("    0.1234567890E 09", None),
        ("    0.1234567890E- 9", None),
        ("    0.1234567890E-9:", None),
        ("    0.1234567890-100", None),
        ("    0.1234567890   1", None),
        ("    +1.234567890    ", None),
        ("    11.234567890    ", None),
        ("   - 1.234567890    ", None),
        ("   --1.234567890    ", None),
        ("-    1.234567890    ", None),
        ("9    1.234567890    ", None),
        ("     1.23456.890    ", None),
        ("     1.23456 890    ", None),
        ("     1.23456-890    ", None),
        ("     1. 34567890    ", None),
        ("      .234567890    ", None),
        ("     12345678901    ", None),
        ("    .12345678901    ", None),
        ("     *.*********    ", None),
        ("            NaN     ", None),
    ] {
        let line = format!("{number}{number}     2.500000000    ").into_bytes();
        let expected = expected.map(|value: f64| [value, value, 2.5].map(f64::to_bits));
        assert_eq!(by_columns(&line), expected, "{number}");
        if expected.is_some() {
            assert_eq!(by_words(&line), expected, "{number}");
        }
    }
}

#[test]
fn other_lines_are_left_to_words() {
    let three = [1.5, -2.5, 3.5].map(g20_10).concat();
    assert_eq!(three_g20_10(&three), Some([1.5, -2.5, 3.5]));
    for line in [
        &three[..59],
        &[&three[..], b"   1"].concat(),
        &[&three[..], &[b' '; 20]].concat(),
        b"",
        b"1.5 -2.5 3.5",
    ] {
        assert_eq!(three_g20_10(line), None, "{}", line.escape_ascii());
    }
}
