//! Units of the variables in Amber's files, and factors that convert numbers to paceline's units.
//!
//! A unit is a product of powers in the notation of UDUNITS: `kilocalorie/mole/angstrom`,
//! `nm ps-1`, `kJ.mol^-1.nm^-1`. Names such as `nanometers` may be in upper or lower case, have an
//! SI prefix and be plural. The case of symbols such as `nm` matters, but a symbol that is unknown
//! as written is also looked up in lower case.

/// Powers of length, time, energy, amount of substance, and angle.
type Powers = [i32; 5];

const LENGTH: Powers = [1, 0, 0, 0, 0];
const TIME: Powers = [0, 1, 0, 0, 0];
const ENERGY: Powers = [0, 0, 1, 0, 0];
const AMOUNT: Powers = [0, 0, 0, 1, 0];
const ANGLE: Powers = [0, 0, 0, 0, 1];

/// Size of a unit in Å, ps, kJ, mol and degrees: a number times a power of ten.
#[derive(Debug, Clone, Copy)]
struct Size {
    number: f64,
    tens: i32,
}

const fn size(number: f64, tens: i32) -> Size {
    Size { number, tens }
}

// Constants of MDAnalysis: CODATA 2010, and the thermochemical calorie.
const AVOGADRO: Size = size(6.022_141_29, 23);
const NEWTON: Powers = [-1, 0, 1, 0, 0];

/// For each unit: symbols, which may have a prefix of one letter; names, in lowercase; the size;
/// and the powers.
const UNITS: [(&[&str], &[&str], Size, Powers); 15] = [
    (&["m"], &["meter", "metre"], size(1.0, 10), LENGTH),
    (&["s"], &["second", "sec"], size(1.0, 12), TIME),
    (&["J", "j"], &["joule"], size(1.0, -3), ENERGY),
    (&["cal"], &["calorie"], size(4.184, -3), ENERGY),
    (
        &["eV", "ev"],
        &["electronvolt"],
        size(1.602_176_565, -22),
        ENERGY,
    ),
    (&["N"], &["newton"], size(1.0, -13), NEWTON),
    (&["mol"], &["mole"], size(1.0, 0), AMOUNT),
    (
        &["rad"],
        &["radian"],
        size(180.0 / std::f64::consts::PI, 0),
        ANGLE,
    ),
    (&[], &["degree", "deg", "°"], size(1.0, 0), ANGLE),
    (
        &[],
        &[
            "angstrom",
            "ångström",
            "ångstrom",
            "å",
            "\u{212b}",
            "ang",
            "a",
        ],
        size(1.0, 0),
        LENGTH,
    ),
    (&[], &["micron"], size(1.0, 4), LENGTH),
    (&[], &["bohr"], size(5.291_772_109_2, -1), LENGTH),
    (&[], &["minute", "min"], size(6.0, 13), TIME),
    (&[], &["akma"], size(4.888_821, -2), TIME),
    (&[], &["hartree"], size(4.359_744_34, -21), ENERGY),
];

/// SI prefixes: letters, name and power of ten.
const PREFIXES: [(&[&str], &str, i32); 10] = [
    (&["a"], "atto", -18),
    (&["f"], "femto", -15),
    (&["p"], "pico", -12),
    (&["n"], "nano", -9),
    (&["u", "µ", "μ"], "micro", -6),
    (&["m"], "milli", -3),
    (&["c"], "centi", -2),
    (&["d"], "deci", -1),
    (&["k"], "kilo", 3),
    (&["M"], "mega", 6),
];

/// Return the factor that converts a unit to paceline's unit (Å, ps, Å/ps, kJ/(mol·Å) or degrees)
/// of the same quantity as `like`. `None` if the unit is invalid, or is one of another quantity.
pub fn factor(unit: &str, like: &str) -> Option<f64> {
    let (found, mut powers) = parse(unit)?;
    let (_, wanted) = parse(like)?;
    let mut tens = found.tens;
    let mut number = found.number;
    if powers[3] == 0 && wanted[3] == -1 {
        // The unit is per particle, and not per mole.
        powers[3] = -1;
        number *= AVOGADRO.number;
        tens = tens.checked_add(AVOGADRO.tens)?;
    }
    let scale = 10_f64.powi(tens.checked_abs()?);
    let factor = if tens < 0 {
        number / scale
    } else {
        number * scale
    };
    let is_sound = |factor: f64| factor.is_finite() && factor > 0.0;
    (powers == wanted && is_sound(factor) && is_sound(f64::from(factor as f32))).then_some(factor)
}

/// Parse a unit, and return its size and its powers; `None` if the unit is invalid.
fn parse(unit: &str) -> Option<(Size, Powers)> {
    let mut product = (size(1.0, 0), [0; 5]);
    let mut rest = unit;
    let mut sign = 1;
    let mut is_empty = true;
    loop {
        rest = rest.trim_start_matches([' ', '*', '.', '·']);
        if rest.is_empty() {
            break;
        }
        if let Some(behind) = rest.strip_prefix('/') {
            if sign < 0 {
                return None;
            }
            (rest, sign) = (behind, -1);
            continue;
        }
        if let Some((inner, behind)) = in_parentheses(rest) {
            let (power, behind) = power(behind)?;
            let (one, powers) = parse(inner)?;
            multiply(&mut product, one, powers, sign * power)?;
            (rest, sign, is_empty) = (behind, 1, false);
            continue;
        }
        let n = rest.find(|c: char| !is_letter(c)).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(n);
        if name.eq_ignore_ascii_case("per") {
            (rest, sign) = (behind, -1);
            continue;
        }
        let (power, behind) = power(behind)?;
        let (one, powers) = resolve(name)?;
        multiply(&mut product, one, powers, sign * power)?;
        (rest, sign, is_empty) = (behind, 1, false);
    }
    (sign == 1 && !is_empty).then_some(product)
}

/// Return the text between an initial parenthesis and the next one, and the rest. Nested
/// parentheses are not supported, so that no file can cause a deep recursion.
fn in_parentheses(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('(')?;
    let (inner, behind) = inner.split_once(')')?;
    (!inner.contains('(')).then_some((inner, behind))
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic() || c == '°'
}

/// Parse the power after a unit; return the power and the rest. If no power follows, return 1.
/// `None` if the power is invalid.
fn power(text: &str) -> Option<(i32, &str)> {
    let marked = text.strip_prefix("**").or_else(|| text.strip_prefix('^'));
    let digits = marked.unwrap_or(text);
    let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(digits);
    let n = unsigned.find(|c: char| !c.is_ascii_digit());
    let behind = &unsigned[n.unwrap_or(unsigned.len())..];
    let number = &digits[..digits.len() - behind.len()];
    if number.is_empty() && marked.is_none() {
        return Some((1, text));
    }
    let power = number.parse().ok().filter(|power: &i32| power.abs() <= 9)?;
    Some((power, behind))
}

fn multiply(product: &mut (Size, Powers), one: Size, powers: Powers, power: i32) -> Option<()> {
    let (size, all) = product;
    size.number *= one.number.powi(power);
    size.tens = size.tens.checked_add(one.tens.checked_mul(power)?)?;
    for (sum, one) in all.iter_mut().zip(powers) {
        *sum = sum.checked_add(one.checked_mul(power)?)?;
    }
    Some(())
}

/// Return size and powers of the unit with this symbol or name, with or without a prefix.
fn resolve(word: &str) -> Option<(Size, Powers)> {
    let lower = word.to_lowercase();
    let singular = lower.strip_suffix('s').unwrap_or(&lower);
    of_symbol(word)
        .or_else(|| of_name(&lower))
        .or_else(|| of_name(singular))
        .or_else(|| of_symbol(&lower))
}

fn of_symbol(word: &str) -> Option<(Size, Powers)> {
    UNITS.iter().find_map(|&(symbols, _, size, powers)| {
        let prefix = symbols
            .iter()
            .find_map(|symbol| word.strip_suffix(symbol))?;
        let is = |(letters, _, _): &&(&[&str], _, _)| letters.contains(&prefix);
        let tens = match prefix {
            "" => 0,
            _ => PREFIXES.iter().find(is)?.2,
        };
        Some((with_tens(size, tens), powers))
    })
}

fn of_name(word: &str) -> Option<(Size, Powers)> {
    UNITS.iter().find_map(|&(_, names, size, powers)| {
        let prefix = names.iter().find_map(|name| word.strip_suffix(name))?;
        let is = |(_, name, _): &&(_, &str, _)| *name == prefix;
        let tens = match prefix {
            "" => 0,
            _ => PREFIXES.iter().find(is)?.2,
        };
        Some((with_tens(size, tens), powers))
    })
}

fn with_tens(one: Size, tens: i32) -> Size {
    size(one.number, one.tens + tens)
}

#[cfg(test)]
mod tests {
    use super::factor;

    const FORCE: &str = "kilocalorie/mole/angstrom";
    const VELOCITY: &str = "angstrom/picosecond";

    #[test]
    fn ambers_own_units_need_no_factor_but_forces() {
        for (unit, is) in [
            ("angstrom", 1.0),
            ("picosecond", 1.0),
            (VELOCITY, 1.0),
            ("degree", 1.0),
            (FORCE, 4.184),
        ] {
            assert_eq!(factor(unit, unit), Some(is), "{unit}");
        }
    }

    #[test]
    fn units_in_every_spelling() {
        for (unit, like, is) in [
            ("Angstroms", "angstrom", 1.0),
            ("ANGSTROM", "angstrom", 1.0),
            ("Å", "angstrom", 1.0),
            ("A", "angstrom", 1.0),
            ("nanometer", "angstrom", 10.0),
            ("NanoMetres", "angstrom", 10.0),
            ("nm", "angstrom", 10.0),
            ("NM", "angstrom", 10.0),
            ("pm", "angstrom", 0.01),
            ("kilometer", "angstrom", 1e13),
            ("bohr", "angstrom", 0.529_177_210_92),
            ("femtosecond", "picosecond", 0.001),
            ("fs", "picosecond", 0.001),
            ("ns", "picosecond", 1000.0),
            ("MS", "picosecond", 1e9),
            ("us", "picosecond", 1e6),
            ("second", "picosecond", 1e12),
            ("s", "picosecond", 1e12),
            ("angstrom/femtosecond", VELOCITY, 1000.0),
            ("Angstrom ps-1", VELOCITY, 1.0),
            ("nm.ps^-1", VELOCITY, 10.0),
            ("nanometers per picosecond", VELOCITY, 10.0),
            ("m/s", VELOCITY, 0.01),
            ("degrees", "degree", 1.0),
            ("DEGREES", "degree", 1.0),
            ("radian", "degree", 180.0 / std::f64::consts::PI),
            ("kcal mol**-1 A**-1", FORCE, 4.184),
            ("kJ/mol/nm", FORCE, 0.1),
            ("kilojoule mole-1 nanometer-1", FORCE, 0.1),
            ("KJ/MOL/NM", FORCE, 0.1),
            ("(Kcal/mol)/angstrom", FORCE, 4.184),
            ("kcal/(mol angstrom)", FORCE, 4.184),
            ("kJ/(mol)/(nm)", FORCE, 0.1),
            ("(nm)/(ps)", VELOCITY, 10.0),
            ("(nm2)^-1 (nm)3", "angstrom", 10.0),
            ("pN", FORCE, 0.060_221_412_9),
            ("Newtons", FORCE, 6.022_141_29e10),
        ] {
            let found = factor(unit, like).expect(unit);
            assert!((found / is - 1.0).abs() < 1e-15, "{unit}: {found}");
        }
    }

    #[test]
    fn what_is_no_unit_of_that_quantity() {
        for unit in [
            "",
            "/",
            "furlong",
            "ps",
            "nm/",
            "nm2",
            "nm//ps",
            "xnm",
            "nm^",
            "nm-",
            "per nm",
            "mol",
            "nm99999999999",
            "nm9",
            "kangstroms per",
            "1",
            "()",
            "(nm",
            "nm)",
            "((nm))",
            "nm/()",
            "é",
            "degrees",
        ] {
            assert_eq!(factor(unit, "angstrom"), None, "{unit}");
        }
    }
}
