//! Comparison of decoding a part of a frame, in the formats that have several fields.

use paceline_formats::{Decoder, Fields, Frame};

/// Return the bytes that a decoder asks for of frame number `number`, one run after another.
pub fn asked_for(decoder: &mut dyn Decoder, number: u64, frame: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut end = 0;
    for run in decoder.runs(number, frame.len() as u64) {
        assert!(run.start >= end && run.len > 0, "runs ascend");
        end = run.end();
        bytes.extend_from_slice(&frame[run.start as usize..end as usize]);
    }
    bytes
}

/// Return the frame that decoding a part of `whole` must give.
pub fn gather(whole: &Frame, atoms: &[usize], wanted: Fields) -> Frame {
    let some = |values: &[f32], wanted| match wanted {
        true => atoms
            .iter()
            .flat_map(|&i| &values[3 * i..][..3])
            .copied()
            .collect(),
        false => Vec::new(),
    };
    Frame {
        positions: some(&whole.positions, wanted.positions),
        velocities: some(&whole.velocities, wanted.velocities),
        forces: some(&whole.forces, wanted.forces),
        ..whole.clone()
    }
}

/// All of a frame, so that NaN equals NaN: which one a product is, is up to the processor.
pub fn bits(frame: &Frame) -> (Vec<u32>, u64, i64, u32, Fields) {
    let fields = [&frame.positions, &frame.velocities, &frame.forces];
    let numbers = fields
        .into_iter()
        .flatten()
        .copied()
        .chain(frame.unit_cell().dimensions);
    let bits = numbers.map(|number| match number.is_nan() {
        true => u32::MAX,
        false => number.to_bits(),
    });
    (
        bits.collect(),
        frame.time.to_bits(),
        frame.step,
        frame.lambda.to_bits(),
        frame.fields,
    )
}
