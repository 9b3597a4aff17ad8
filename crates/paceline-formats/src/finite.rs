//! Refuses numbers that no reader could use.

/// Refuse values that are not all finite; `one` is what each atom has three of.
///
/// # Errors
/// The first atom with another number, in a sentence.
pub fn check_finite(values: &[f32], one: &str) -> Result<(), String> {
    if values.iter().fold(0, |odd, &x| odd | odd_bits(x)) == 0 {
        return Ok(());
    }
    let at = values.iter().position(|x| !x.is_finite()).unwrap_or(0);
    Err(not_finite(at / 3, one, values[at]))
}

/// What to say of an atom that has such a number.
pub fn not_finite(atom: usize, one: &str, found: f32) -> String {
    format!("atom {atom}: expected a finite {one}, found {found}")
}

/// No bits of a finite number, some of any other: x − x is 0, or NaN. Gathered from all numbers
/// of a frame, without a branch for each, they take a seventh of the time of a search.
#[expect(clippy::eq_op, reason = "not equal where x is NaN or infinite")]
pub fn odd_bits(x: f32) -> u32 {
    (x - x).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_atom_with_a_number_that_is_not_finite_is_named() {
        for n_atoms in [1, 2, 7, 100] {
            let mut values = vec![f32::MAX; 3 * n_atoms];
            values[0] = -0.0;
            values[1] = 1e-45;
            assert_eq!(check_finite(&values, "force"), Ok(()));
            values[3 * n_atoms - 1] = f32::NAN;
            for (found, name) in [
                (f32::NAN, "NaN"),
                (-f32::NAN, "NaN"),
                (f32::INFINITY, "inf"),
                (f32::NEG_INFINITY, "-inf"),
            ] {
                for at in 0..3 * n_atoms {
                    let mut values = values.clone();
                    values[at] = found;
                    let atom = at / 3;
                    let expected = format!("atom {atom}: expected a finite force, found {name}");
                    assert_eq!(check_finite(&values, "force"), Err(expected));
                }
            }
        }
        assert_eq!(check_finite(&[], "force"), Ok(()));
    }
}
