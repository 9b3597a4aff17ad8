//! Tests of numbers as text, compared with exact arithmetic, and with gfortran if it is installed.

mod columns;
mod exact;
mod gfortran;
mod values;

use gfortran::Program;
use paceline_formats::fortran_numbers::{e16_7, f, g20_10, i, take_integer, take_real};
use values::{Random, all};

fn text(columns: &[u8]) -> &str {
    std::str::from_utf8(columns).unwrap()
}

/// Return the columns, or the stars that Fortran writes if a number needs more columns.
fn or_stars<const WIDTH: usize>(columns: Option<[u8; WIDTH]>) -> [u8; WIDTH] {
    columns.unwrap_or([b'*'; WIDTH])
}

/// Values that gfortran rounds up to the next power of ten, although most of them are below the
/// halfway point.
const BORDERS: [f64; 6] = [
    0.99999999995,
    9.9999999995,
    99.999999995,
    999.99999995,
    9999.9999995,
    999999.99995,
];

#[test]
fn ten_digits_are_those_of_the_exact_value() {
    for value in all(20_000).into_iter().step_by(7) {
        let expected = match value.abs() {
            ..1e-99 if value != 0.0 => exact::general(0.0),
            size if BORDERS.contains(&size) => exact::general(value * (1.0 + f64::EPSILON)),
            _ => exact::general(value),
        };
        assert_eq!(text(&g20_10(value)), expected, "{value:e}");
    }
}

#[test]
fn decimals_are_those_of_the_exact_value() {
    for value in all(20_000).into_iter().step_by(7) {
        let expected = exact::fixed(value, 6);
        assert_eq!(
            f::<12, 6>(value).map(|columns| text(&columns).trim().to_owned()),
            Some(expected).filter(|text| text.len() <= 12),
            "{value:e}"
        );
        let expected = exact::fixed(value, 10);
        assert_eq!(
            f::<20, 10>(value).map(|columns| text(&columns).trim().to_owned()),
            Some(expected).filter(|text| text.len() <= 20),
            "{value:e}"
        );
    }
}

#[test]
fn what_is_written_is_gfortrans() {
    let Some(program) = Program::compile("write") else {
        return;
    };
    let values = all(40_000);
    let input: String = values
        .iter()
        .map(|value| format!("{:016X}\n", value.to_bits()))
        .collect();
    let output = program.run(&input);
    assert_eq!(output.lines().count(), values.len());
    for (&value, expected) in values.iter().zip(output.lines()) {
        if !value.is_finite() {
            assert_eq!(text(&g20_10(value)), &expected[..20]);
            assert_eq!(text(&e16_7(value)), &expected[72..88]);
            continue;
        }
        // Paceline writes 0 for a number with an exponent of three digits.
        let general = match value.abs() {
            ..1e-99 if value != 0.0 => expected.as_bytes()[..20].try_into().unwrap(),
            _ => g20_10(value),
        };
        let integer = value.to_bits() as i64 >> (value.to_bits() & 63);
        let columns = [
            &general[..],
            &or_stars(f::<20, 10>(value)),
            &or_stars(f::<12, 6>(value)),
            &or_stars(f::<20, 6>(value)),
            &e16_7(value),
            &or_stars(i::<10>(integer)),
            &or_stars(i::<21>(integer)),
        ];
        assert_eq!(text(&columns.concat()), expected, "{value:e}");
    }
}

#[test]
fn what_is_written_is_read_again() {
    for value in all(20_000) {
        let columns = g20_10(value);
        let mut line = &columns[..];
        let expected: f64 = with_letter(text(&columns).trim()).parse().unwrap();
        let Some(back) = take_real(&mut line) else {
            // With ten digits, the largest double overflows when it is read.
            assert_eq!(value.abs(), f64::MAX);
            continue;
        };
        assert!(
            back.to_bits() == expected.to_bits() || value.is_nan(),
            "{value:e}"
        );
        assert_eq!(text(line).trim(), "");
    }
}

/// Insert the letter of an exponent of three digits, which Fortran omits.
fn with_letter(text: &str) -> String {
    match text.len().checked_sub(4) {
        Some(at)
            if text[at..].starts_with(['+', '-']) && text[..at].ends_with(char::is_numeric) =>
        {
            format!("{}E{}", &text[..at], &text[at..])
        }
        _ => text.to_owned(),
    }
}

/// Return words that are numbers, almost numbers, and no numbers.
fn words() -> Vec<String> {
    let mut random = Random(7);
    let mut words: Vec<String> = Vec::new();
    for value in all(4_000).into_iter().filter(|value| value.is_finite()) {
        let digits = random.below(30);
        words.push(format!("{value:.digits$e}"));
        words.push(format!("{value:.digits$E}").replace('E', "D"));
        words.push(format!("+{:.digits$e}", value.abs()).replace("e-", "-"));
        if (1e-30..1e30).contains(&value.abs()) {
            words.push(format!("{value:.digits$}"));
            words.push(format!("{value:040.digits$}"));
        }
    }
    const CHARACTERS: &[u8] = b"0123456789.+-EeDdq";
    for _ in 0..20_000 {
        let len = 1 + random.below(8);
        let word = (0..len).map(|_| CHARACTERS[random.below(CHARACTERS.len())] as char);
        words.push(word.collect());
    }
    words.extend(
        [
            "NaN",
            "nan",
            "-inf",
            "Infinity",
            "+INFINITY",
            "infinit",
            "x",
        ]
        .map(String::from),
    );
    words
}

#[test]
fn what_is_read_is_gfortrans() {
    let Some(program) = Program::compile("read") else {
        return;
    };
    let words = words();
    let output = program.run(&(words.join("\n") + "\n"));
    assert_eq!(output.lines().count(), words.len());
    for (word, expected) in words.iter().zip(output.lines()) {
        let mut line = word.as_bytes();
        let expected = u64::from_str_radix(expected, 16).ok().map(f64::from_bits);
        match (take_real(&mut line), expected) {
            (None, None) => assert_eq!(line, word.as_bytes()),
            // The number is larger than the largest double.
            (None, Some(theirs)) if theirs.is_infinite() => {}
            (Some(ours), Some(theirs)) if ours.is_nan() => assert!(theirs.is_nan(), "{word}"),
            (Some(ours), Some(theirs)) => {
                assert_eq!(
                    ours.to_bits(),
                    theirs.to_bits(),
                    "{word}: {ours:e}, {theirs:e}"
                )
            }
            other => panic!("{word}: {other:?}"),
        }
    }
}

#[test]
fn numbers_are_taken_one_after_another() {
    let mut line = &b"  K+  1\t-7.5 1D+2  .5\r\n"[..];
    assert_eq!(take_integer(&mut line), None);
    line = &line[4..];
    assert_eq!(take_integer(&mut line), Some(1));
    assert_eq!(
        [(); 3].map(|()| take_real(&mut line)),
        [Some(-7.5), Some(100.0), Some(0.5)]
    );
    assert_eq!((take_real(&mut line), line), (None, &b"\r\n"[..]));
    for word in [
        "",
        "   ",
        "-",
        "1.0x",
        "1.0 E5x",
        "**********",
        "1E",
        "1E+",
        "1e999",
        "1,5",
    ] {
        let mut line = word.as_bytes();
        match take_real(&mut line) {
            Some(value) => assert_eq!((word, value, line), ("1.0 E5x", 1.0, &b" E5x"[..])),
            None => assert_eq!(line, word.as_bytes()),
        }
    }
    for word in ["", "-", "1.0", "99999999999999999999", "1x", "**********"] {
        assert_eq!(take_integer(&mut word.as_bytes()), None, "{word}");
    }
}
