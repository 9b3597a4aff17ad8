//! Decimal digits by exact arithmetic: the exact expansion, rounded with ties to even.

/// Return the exact digits before and after the point.
fn expansion(value: f64) -> (Vec<u8>, Vec<u8>) {
    // 1074 is the maximum number of decimals of a double.
    let text = format!("{:.1074}", value.abs());
    let (whole, decimals) = text.split_once('.').unwrap();
    let digits = |text: &str| text.bytes().map(|byte| byte - b'0').collect();
    (digits(whole), digits(decimals))
}

/// Round `digits` to `n` digits, with one more digit in front if the rounding carries.
fn rounded(digits: &[u8], n: usize) -> Vec<u8> {
    let (kept, rest) = digits.split_at(n);
    let mut kept = [&[0], kept].concat();
    let half = rest.first().map(|&digit| digit.cmp(&5));
    let more = rest.iter().skip(1).any(|&digit| digit > 0);
    let up = match half {
        Some(std::cmp::Ordering::Greater) => true,
        Some(std::cmp::Ordering::Equal) => more || kept[n] % 2 == 1,
        _ => false,
    };
    if up {
        let mut at = n;
        while kept[at] == 9 {
            kept[at] = 0;
            at -= 1;
        }
        kept[at] += 1;
    }
    kept
}

fn text(digits: &[u8]) -> String {
    digits
        .iter()
        .map(|&digit| char::from(b'0' + digit))
        .collect()
}

fn sign(value: f64) -> &'static str {
    if value.is_sign_negative() { "-" } else { "" }
}

/// Format as `F0.d` with a digit before the point. NaN and infinity fill more columns than any
/// format has.
pub fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "*".repeat(100);
    }
    let (whole, all) = expansion(value);
    let digits = rounded(&[&whole[..], &all].concat(), whole.len() + decimals);
    let (whole, fraction) = digits.split_at(digits.len() - decimals);
    let whole = text(whole);
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    format!("{}{whole}.{}", sign(value), text(fraction))
}

/// Format as `G20.10`.
pub fn general(value: f64) -> String {
    if !value.is_finite() {
        let name = if value.is_nan() { "NaN" } else { "Infinity" };
        let sign = if value.is_nan() { "" } else { sign(value) };
        return format!("{:>20}", format!("{sign}{name}"));
    }
    let (digits, power) = ten_digits(value);
    let (front, tail) = match power {
        0..=10 => (digits[..power as usize].to_owned(), " ".repeat(4)),
        // Fortran omits the letter of an exponent of three digits.
        100.. => (String::new(), format!("+{power}")),
        _ => (String::new(), format!("E{power:+03}")),
    };
    let rest = &digits[front.len()..];
    let front = if front.is_empty() { "0" } else { &front };
    format!("{:>16}{tail}", format!("{}{front}.{rest}", sign(value)))
}

/// Return d₁…d₁₀ and p of 0.d₁…d₁₀ × 10ᵖ; zero is 0.000000000.
fn ten_digits(value: f64) -> (String, i32) {
    let (whole, decimals) = expansion(value);
    let all = [&whole[..], &decimals, &[0; 10]].concat();
    let Some(first) = all.iter().position(|&digit| digit > 0) else {
        return ("0".repeat(10), 1);
    };
    let power = whole.len() as i32 - first as i32;
    match &rounded(&all[first..], 10)[..] {
        [0, digits @ ..] => (text(digits), power),
        digits => (text(&digits[..10]), power + 1),
    }
}
