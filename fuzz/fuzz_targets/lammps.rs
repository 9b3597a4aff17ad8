//! `cargo +nightly fuzz run lammps fuzz/corpus/lammps fuzz/seeds/lammps`

#![no_main]

#[path = "../../crates/paceline-formats/tests/checks/lammps.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::check(data));
