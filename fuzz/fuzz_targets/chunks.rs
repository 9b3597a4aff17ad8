//! `cargo +nightly fuzz run chunks fuzz/corpus/chunks fuzz/seeds/chunks`

#![no_main]

#[path = "../checks/chunks.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
