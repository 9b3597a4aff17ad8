//! `ASAN_OPTIONS=detect_odr_violation=0 cargo +nightly fuzz run chunks fuzz/corpus/chunks
//! fuzz/seeds/chunks`: libdeflate holds its tables once for each kind of processor, under one name.

#![no_main]

#[path = "../../crates/paceline-formats/tests/checks/chunks.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
