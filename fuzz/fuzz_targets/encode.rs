//! `cargo +nightly fuzz run encode`

#![no_main]

#[path = "../checks/encode.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
