//! Checks of the fuzz target, which `cargo test` runs on the seeds: parse, decode all atoms and
//! some atoms, and compare.

use super::{Atoms, DcdDecoder, Decoder, Fault, Fields, Frame, Layout};

/// Check a decoder. The first two bytes choose the atoms; the rest is a file.
pub fn exercise(data: &[u8]) {
    let Some((&[first, stride], file)) = data.split_first_chunk() else {
        return;
    };
    let Some(layout) = parse(file) else {
        return;
    };
    assert_eq!(
        Layout::from_bytes(&layout.to_bytes()).as_ref(),
        Some(&layout)
    );
    if layout.header_size() + layout.first_frame_size() > file.len() as u64 {
        return;
    }
    let n_atoms = layout.n_atoms();
    let some: Vec<usize> = (usize::from(first)..n_atoms)
        .step_by(1 + usize::from(stride))
        .collect();
    let all = frames(&layout, Atoms::all(n_atoms), file);
    let some_atoms = Atoms::new(&some, n_atoms).expect("increasing indices");
    let wanted = frames(&layout, some_atoms, file);
    for (all, wanted) in all.iter().zip(&wanted) {
        // The decoder of all atoms reads more markers, so that it may refuse a frame that the other
        // decoder accepts.
        let Some(all) = all else { continue };
        let gathered: Vec<u32> = some
            .iter()
            .flat_map(|&atom| &all[3 * atom..3 * atom + 3])
            .copied()
            .collect();
        assert_eq!(wanted.as_ref(), Some(&gathered));
    }
}

/// Parse the header of `file` from an empty slice first, and from as many bytes as the parser
/// requests after that.
fn parse(file: &[u8]) -> Option<Layout> {
    let mut head = 0;
    loop {
        match Layout::parse(&file[..head], file.len() as u64) {
            Ok(layout) => return Some(layout),
            Err(Fault::Short { needed }) => {
                assert!(needed > head, "asked for {needed} bytes with {head}");
                head = needed;
            }
            Err(_) => return None,
        }
    }
}

/// Return the bits of the positions in the first frames, or `None` for a damaged frame.
fn frames(layout: &Layout, atoms: Atoms, file: &[u8]) -> Vec<Option<Vec<u32>>> {
    let mut out = Frame::new(atoms.len(), Fields::POSITIONS);
    let mut decoder = DcdDecoder::new(layout.clone(), atoms);
    let (mut start, mut size) = (
        layout.header_size() as usize,
        layout.first_frame_size() as usize,
    );
    if decoder.needs_first_frame() && decoder.set_first_frame(&file[start..start + size]).is_err() {
        return Vec::new();
    }
    let mut frames = Vec::new();
    while let (0..8, Some(frame)) = (frames.len(), file.get(start..start + size)) {
        let number = frames.len() as u64;
        let mut bytes = Vec::new();
        for run in decoder.runs(number, size as u64) {
            bytes.extend_from_slice(&frame[run.start as usize..(run.start + run.len) as usize]);
        }
        let decoded = decoder.decode(number, size as u64, &bytes, out.out());
        let bits = out.positions.iter().map(|number: &f32| number.to_bits());
        frames.push(decoded.is_ok().then(|| bits.collect()));
        start += size;
        size = layout.frame_size() as usize;
    }
    frames
}
