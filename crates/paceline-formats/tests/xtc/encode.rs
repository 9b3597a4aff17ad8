//! Tests of the encoders with paceline's decoders. Python tests compare them with other programs.

use super::check_encode::check;
use super::frames::Random;
use super::{all_kinds, bits, decode_all};
use paceline_formats::Encoder;
use paceline_formats::xtc::XtcEncoder;

#[test]
fn what_was_decoded_is_encoded_to_the_same() {
    let random = &mut Random(21);
    for frame in all_kinds(random) {
        let decoded = decode_all(&frame.encode(random)).unwrap();
        // Skip frames with integers that are too large to survive the conversion to floats and
        // back.
        let most = frame.atoms.iter().flatten().map(|x| x.unsigned_abs()).max();
        if most > Some(1 << 21) {
            continue;
        }
        let mut encoder = XtcEncoder::new(frame.atoms.len(), frame.precision).unwrap();
        let mut bytes = Vec::new();
        encoder.encode(&decoded.as_input(), &mut bytes).unwrap();
        let again = decode_all(&bytes).unwrap();
        if frame.atoms.len() > 9 {
            assert_eq!(bits(&again.positions), bits(&decoded.positions));
        }
        assert_eq!(again.cell, decoded.cell);
        assert_eq!((again.step, again.time), (decoded.step, decoded.time));
    }
}

#[test]
fn any_positions_come_back_or_are_refused() {
    let random = &mut Random(23);
    for round in 0..2000 {
        let n = random.below(60);
        let scale = [0, 0, 1, 4, 8, 12, 20, 28][round % 8];
        let mut data = vec![random.next() as u8, scale];
        for _ in 0..3 * n {
            data.extend((random.next() as u32).to_le_bytes());
        }
        check(&data);
    }
}
