//! Tests of the XTC decoder on frames with known atoms: whole frames, parts of frames, and damaged
//! frames.

#[path = "../checks/xtc.rs"]
mod check;
#[path = "../checks/encode.rs"]
mod check_encode;
mod encode;
mod frames;

use frames::{Frame, Random};
use paceline_formats::atom_set::Atoms;
use paceline_formats::error::Fault;
use paceline_formats::xtc::{HEADER_MAX, Header, XtcDecoder};
use paceline_formats::{Decoder, Fields, Frame as Decoded};

fn decode_bytes(decoder: &mut XtcDecoder, n: usize, bytes: &[u8]) -> Result<Decoded, Fault> {
    decode_part(decoder, n, bytes.len(), bytes)
}

fn decode_part(
    decoder: &mut XtcDecoder,
    n: usize,
    size: usize,
    bytes: &[u8],
) -> Result<Decoded, Fault> {
    let mut decoded = Decoded::new(n, Fields::POSITIONS);
    decoded.positions.fill(f32::NAN);
    decoder.decode(0, size as u64, bytes, decoded.out())?;
    Ok(decoded)
}

/// Decode like a reader: pass the bytes that the decoder requests, and more if it requests more.
fn decode_as_asked(decoder: &mut XtcDecoder, n: usize, bytes: &[u8]) -> (Decoded, usize) {
    let size = bytes.len();
    let mut len = decoder.runs(0, size as u64)[0].len as usize;
    loop {
        assert!(len <= size);
        match decode_part(decoder, n, size, &bytes[..len]) {
            Ok(decoded) => return (decoded, len),
            Err(Fault::Short { needed }) => {
                assert!(needed > len);
                len = needed;
            }
            Err(fault) => panic!("{fault:?}"),
        }
    }
}

fn decode_all(bytes: &[u8]) -> Result<Decoded, Fault> {
    let n = Header::parse(bytes)?.n_atoms;
    decode_bytes(&mut XtcDecoder::new(Atoms::all(n)), n, bytes)
}

fn bits(positions: &[f32]) -> Vec<u32> {
    positions.iter().map(|x| x.to_bits()).collect()
}

/// Return frames that use every part of the format.
fn all_kinds(random: &mut Random) -> Vec<Frame> {
    let mut frames = Vec::new();
    for n in [0, 1, 9, 10, 11, 12, 50, 1000] {
        for (step, small) in [(3, 9), (40, 24), (700, 36), (200_000, 60), (4_000_000, 72)] {
            frames.push(Frame {
                small,
                ..Frame::chain(n, step, random)
            });
        }
    }
    for magic in [1995, 2023] {
        for precision in [1.0, 10.0, 1234.5, 1e6] {
            frames.push(Frame {
                magic,
                precision,
                run_max: 10,
                ..Frame::chain(400, 100, random)
            });
        }
    }
    let wide = |random: &mut Random| Frame::chain(300, 90, random);
    let mut far_apart = wide(random);
    far_apart.atoms[7] = [i32::MIN + 2, 0, 5];
    far_apart.atoms[8] = [i32::MAX - 2, 1 << 25, 5];
    frames.push(far_apart);
    let mut flat = wide(random);
    flat.atoms.iter_mut().for_each(|atom| atom[1] = -3);
    frames.push(flat);
    let mut point = wide(random);
    point.atoms.fill([7, 7, 7]);
    frames.push(point);
    frames
}

#[test]
fn whole_frames_are_decoded_bit_for_bit() {
    let random = &mut Random(1);
    for frame in all_kinds(random) {
        let decoded = decode_all(&frame.encode(random)).unwrap();
        assert_eq!(bits(&decoded.positions), bits(&frame.positions()));
        assert_eq!((decoded.step, decoded.time), (5, 2.5));
        assert_eq!(
            decoded.unit_cell().dimensions,
            [30.0, 40.0, 50.0, 90.0, 90.0, 90.0]
        );
    }
}

#[test]
fn selections_are_the_gather_of_the_whole() {
    let random = &mut Random(2);
    for frame in all_kinds(random) {
        let n = frame.atoms.len();
        let (bytes, whole) = (frame.encode(random), frame.positions());
        for one_in in [1, 2, 5, 15, 100] {
            let end = 1 + random.below(n + 1);
            let chosen: Vec<usize> = (0..end.min(n))
                .filter(|_| random.below(one_in) == 0)
                .collect();
            let expected = chosen.iter().flat_map(|&i| &whole[3 * i..3 * i + 3]);
            let expected: Vec<u32> = expected.map(|x| x.to_bits()).collect();
            let mut decoder = XtcDecoder::new(Atoms::new(&chosen, n).unwrap());
            for _ in 0..2 {
                let (decoded, _) = decode_as_asked(&mut decoder, chosen.len(), &bytes);
                assert_eq!(bits(&decoded.positions), expected);
            }
        }
    }
}

#[test]
fn only_what_reaches_the_last_wanted_atom_is_asked_for() {
    let random = &mut Random(3);
    let bytes = Frame::chain(10_000, 50, random).encode(random);
    let mut decoder = XtcDecoder::new(Atoms::new(&[3, 99], 10_000).unwrap());
    decode_as_asked(&mut decoder, 2, &bytes);
    let (_, len) = decode_as_asked(&mut decoder, 2, &bytes);
    assert!(len < bytes.len() / 20, "{len} of {} bytes", bytes.len());
}

#[test]
fn headers_know_the_size_of_their_frame() {
    let random = &mut Random(4);
    for frame in all_kinds(random) {
        let bytes = frame.encode(random);
        let header = Header::parse(&bytes[..bytes.len().min(HEADER_MAX)]).unwrap();
        assert_eq!(header.size, bytes.len() as u64);
        assert_eq!(header.n_atoms, frame.atoms.len());
    }
}

/// Overwrite `bytes[at..]`, decode, and return the offset of the fault.
fn fault_after(bytes: &[u8], at: usize, new: i32) -> usize {
    let mut bytes = bytes.to_vec();
    bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
    let n = 100;
    match decode_bytes(&mut XtcDecoder::new(Atoms::all(n)), n, &bytes) {
        Err(Fault::Bad { at, .. }) => at,
        other => panic!("{new} at byte {at}: {other:?}"),
    }
}

#[test]
fn every_header_field_is_checked() {
    let random = &mut Random(5);
    let bytes = Frame::chain(100, 50, random).encode(random);
    let len = i32::from_be_bytes(bytes[88..92].try_into().unwrap());
    let not_a_number = f32::NAN.to_bits() as i32;
    for (at, new) in [
        (0, 1993),
        (4, -1),
        (4, 101),
        (52, 99),
        (56, not_a_number),
        (56, 0),
    ] {
        assert_eq!(
            fault_after(&bytes, at, new),
            if new == 101 { 52 } else { at }
        );
    }
    for (at, new) in [(72, i32::MIN), (76, i32::MIN), (84, 8), (84, 74), (84, -1)] {
        assert_eq!(fault_after(&bytes, at, new), at);
    }
    for new in [-1, 0, 10, len + 4, len - 4, i32::MAX] {
        assert_eq!(fault_after(&bytes, 88, new), 88);
    }
}

#[test]
fn another_number_of_atoms_is_refused() {
    let random = &mut Random(6);
    let bytes = Frame::chain(100, 50, random).encode(random);
    let fault = decode_bytes(&mut XtcDecoder::new(Atoms::all(99)), 99, &bytes);
    let expected = Fault::bad(4, "99 atoms, as in the topology", 100);
    assert_eq!(fault, Err(expected));
}

#[test]
fn a_cut_frame_is_short() {
    let random = &mut Random(7);
    for frame in all_kinds(random) {
        let bytes = frame.encode(random);
        let n = frame.atoms.len();
        let packed_end = bytes.len() - if n > 9 { 3 } else { 0 };
        let mut decoder = XtcDecoder::new(Atoms::all(n));
        for len in (0..packed_end).step_by(1 + n / 100) {
            let fault = decode_part(&mut decoder, n, bytes.len(), &bytes[..len]).unwrap_err();
            let Fault::Short { needed } = fault else {
                panic!("{len} of {} bytes: {fault:?}", bytes.len());
            };
            assert!(needed > len && needed <= bytes.len());
        }
    }
}

#[test]
fn unused_bytes_are_damage() {
    let random = &mut Random(8);
    let mut bytes = Frame::chain(100, 50, random).encode(random);
    let len = u32::from_be_bytes(bytes[88..92].try_into().unwrap());
    bytes[88..92].copy_from_slice(&(len + 1).to_be_bytes());
    bytes.resize(92 + (len as usize + 1).next_multiple_of(4), 0);
    let fault = decode_all(&bytes).unwrap_err();
    assert!(matches!(fault, Fault::Bad { at, .. } if at + 2 >= 92 + len as usize));
}

#[test]
fn changed_bytes_never_panic_and_stay_in_bounds() {
    let random = &mut Random(9);
    for frame in all_kinds(random) {
        let (n, bytes) = (frame.atoms.len(), frame.encode(random));
        let some: Vec<usize> = (0..n).filter(|_| random.below(7) == 0).collect();
        let mut all = XtcDecoder::new(Atoms::all(n));
        let mut sparse = XtcDecoder::new(Atoms::new(&some, n).unwrap());
        for _ in 0..60 {
            let mut bytes = bytes.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
            let whole = decode_bytes(&mut all, n, &bytes);
            let part = decode_bytes(&mut sparse, some.len(), &bytes);
            if let (Ok(whole), Ok(part)) = (whole, part) {
                let gather = some
                    .iter()
                    .flat_map(|&i| &whole.positions[3 * i..3 * i + 3]);
                let gather: Vec<u32> = gather.map(|x| x.to_bits()).collect();
                assert_eq!(bits(&part.positions), gather);
            }
        }
    }
}

#[test]
fn seeds_of_the_fuzz_target_hold() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/xtc");
    let mut n = 0;
    for seed in std::fs::read_dir(seeds).unwrap() {
        check::check(&std::fs::read(seed.unwrap().path()).unwrap());
        n += 1;
    }
    assert!(n > 0);
}
