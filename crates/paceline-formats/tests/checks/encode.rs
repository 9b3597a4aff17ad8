//! Check that encoded positions are read back, or are refused for a reason.

use paceline_formats::atom_set::Atoms;
use paceline_formats::dcd::{DcdDecoder, DcdEncoder, Layout};
use paceline_formats::xtc::{Header, XtcDecoder, XtcEncoder};
use paceline_formats::{Decoder, Encoder, Fields, Frame, Series, UnitCell};

const TOO_FAR: f64 = 2_147_483_000.0;

/// Check an encoder. The first two bytes choose the precision and the scale; the rest is positions.
pub fn check(data: &[u8]) {
    let Some((&[precision, scale], numbers)) = data.split_first_chunk() else {
        return;
    };
    let precision = 10f32.powi(i32::from(precision % 8) - 1);
    let numbers = numbers
        .as_chunks::<12>()
        .0
        .as_flattened()
        .as_chunks::<4>()
        .0;
    // A position has arbitrary bits, or is a multiple of 1 / precision in a range in which most
    // frames are valid.
    let position = |&bytes: &[u8; 4]| match scale {
        0 => f32::from_le_bytes(bytes),
        _ => (i32::from_le_bytes(bytes) >> (scale % 32)) as f32 / precision,
    };
    let mut frame = Frame::new(numbers.len() / 3, Fields::POSITIONS);
    frame.positions = numbers.iter().map(position).collect();
    frame.cell = UnitCell::of_dimensions([30.0, 40.0, 50.0, 90.0, 75.0, 90.0]).row();
    check_xtc(&frame, precision);
    check_dcd(&frame);
}

fn check_xtc(frame: &Frame, precision: f32) {
    let n_atoms = frame.positions.len() / 3;
    let mut encoder = XtcEncoder::new(n_atoms, precision).expect("an XTC file");
    let scaled = |&x: &f32| f64::from(x * 0.1 * precision);
    let mut bytes = vec![7];
    if let Err(reason) = encoder.encode(&frame.as_input(), &mut bytes) {
        assert_eq!(bytes, [7]);
        let most = frame
            .positions
            .iter()
            .map(|x| scaled(x).abs())
            .reduce(f64::max);
        let finite = frame.positions.iter().all(|x| x.is_finite());
        assert!(!finite || most > Some(TOO_FAR / 2.0), "{reason}");
        return;
    }
    let bytes = &bytes[1..];
    let header = Header::parse(bytes).expect("our header");
    assert_eq!((header.n_atoms, header.size), (n_atoms, bytes.len() as u64));
    let mut decoded = Frame::new(n_atoms, Fields::POSITIONS);
    XtcDecoder::new(Atoms::all(n_atoms))
        .decode(0, header.size, bytes, decoded.out())
        .expect("our frame");
    for (x, back) in frame.positions.iter().zip(&decoded.positions) {
        if n_atoms <= 9 {
            assert_eq!(back.to_bits(), (x * 0.1 * 10.0).to_bits());
        } else {
            let whole = (scaled(x) + 0.5f64.copysign(scaled(x))) as f32 as i32;
            let expected = whole as f32 * (1.0 / precision) * 10.0;
            assert_eq!(back.to_bits(), expected.to_bits(), "{x}");
        }
    }
}

fn check_dcd(frame: &Frame) {
    let n_atoms = frame.positions.len() / 3;
    let Ok(mut encoder) = DcdEncoder::new(n_atoms, true) else {
        assert_eq!(n_atoms, 0);
        return;
    };
    let series = Series {
        n_frames: 1,
        time: 2.0,
        dt: 0.0,
        step: 1,
        steps: 0,
    };
    let mut file = encoder.head(&series);
    let head = file.len();
    let encoded = encoder.encode(&frame.as_input(), &mut file);
    let finite = frame.positions.iter().all(|x| x.is_finite());
    assert_eq!(encoded.is_ok(), finite, "{encoded:?}");
    if !finite {
        assert_eq!(file.len(), head);
        return;
    }
    let layout = Layout::parse(&file, file.len() as u64).expect("our head");
    assert_eq!(layout.header_size(), head as u64);
    let mut decoded = Frame::new(n_atoms, Fields::POSITIONS);
    DcdDecoder::new(layout, Atoms::all(n_atoms))
        .decode(0, (file.len() - head) as u64, &file[head..], decoded.out())
        .expect("our frame");
    let bits =
        |frame: &Frame| -> Vec<u32> { frame.positions.iter().map(|x| x.to_bits()).collect() };
    assert_eq!(bits(frame), bits(&decoded));
    assert_eq!(frame.unit_cell().dimensions, decoded.unit_cell().dimensions);
}
