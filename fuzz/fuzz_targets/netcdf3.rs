//! `cargo +nightly fuzz run netcdf3 fuzz/corpus/netcdf3 fuzz/seeds/netcdf3`

#![no_main]

#[path = "../../crates/paceline-formats/tests/checks/netcdf3.rs"]
#[allow(dead_code)] // the tests call `decode`, too
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
