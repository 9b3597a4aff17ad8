//! `cargo +nightly fuzz run xtc fuzz/corpus/xtc fuzz/seeds/xtc`

#![no_main]

#[path = "../../crates/paceline-formats/tests/checks/xtc.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
