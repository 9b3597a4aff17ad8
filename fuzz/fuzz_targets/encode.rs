//! `cargo +nightly fuzz run encode`

#![no_main]

#[path = "../../crates/paceline-formats/tests/checks/encode.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
