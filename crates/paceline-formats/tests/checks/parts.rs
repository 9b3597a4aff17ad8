//! Comparison of a partly decoded frame with the whole frame, for formats with several fields.

use paceline_formats::{Decoder, Fields, Frame};

/// Return the bytes of frame number `number` that a decoder requests, one run after another.
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

/// Return the result that decoding a part of the frame `whole` must have.
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

/// Return all data of a frame as bits, so that NaN equals NaN. The sign of a computed NaN depends
/// on the processor.
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
