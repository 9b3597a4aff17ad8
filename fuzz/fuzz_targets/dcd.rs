#![no_main]

#[path = "../../crates/paceline-formats/tests/checks/dcd.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;
use paceline_formats::atom_set::Atoms;
use paceline_formats::dcd::{DcdDecoder, Layout};
use paceline_formats::error::Fault;
use paceline_formats::{Decoder, Fields, Frame};

fuzz_target!(|data: &[u8]| exercise::exercise(data));
