//! `cargo +nightly fuzz run trr fuzz/corpus/trr fuzz/seeds/trr`

#![no_main]

#[path = "../../crates/paceline-formats/tests/checks/trr.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
