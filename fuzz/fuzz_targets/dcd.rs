#![no_main]

#[path = "../checks/dcd.rs"]
mod exercise;

use libfuzzer_sys::fuzz_target;
use paceline::atoms::Atoms;
use paceline::error::Fault;
use paceline::formats::dcd::{DcdDecoder, Layout};
use paceline::formats::{Decoder, FrameOut};

fuzz_target!(|data: &[u8]| exercise::exercise(data));
