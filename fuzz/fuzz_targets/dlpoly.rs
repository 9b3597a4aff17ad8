//! `cargo +nightly fuzz run dlpoly fuzz/corpus/dlpoly fuzz/seeds/dlpoly`

#![no_main]

#[path = "../../crates/paceline-formats/tests/checks/dlpoly.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
