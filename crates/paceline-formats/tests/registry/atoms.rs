//! Two toy formats of float32 positions, little-endian. "BARE" does not state the number of atoms.
//! Each frame of "LOOS" begins with its own number of atoms, in 32 bits.

use std::any::Any;

use paceline_formats::atom_set::Atoms;
use paceline_formats::error::{Error, Fault, Result};
use paceline_formats::format_interface::{
    Abilities, FileLayout, Format, Frames, Layout, OpenOptions, Opened, Times, n_atoms_of,
};
use paceline_formats::index::fixed_size::{count, cut};
use paceline_formats::source::Source;
use paceline_formats::{Decoder, Fields, FrameOut, Run, UnitCell};

use crate::toy::float;

const HEAD: u64 = 4;
/// Size of an atom, bytes.
const ATOM: u64 = 12;

#[derive(Debug)]
pub struct Bare;

impl Format for Bare {
    fn name(&self) -> &'static str {
        "BARE"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["bare"]
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reads: Fields::POSITIONS,
            needs_n_atoms: true,
            ..Abilities::default()
        }
    }

    fn probe(&self, head: &[u8]) -> bool {
        head.starts_with(b"BARE")
    }

    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
        let n_atoms = options.n_atoms.expect("the crate asks for it");
        let stride = ATOM * n_atoms as u64;
        let (frames, rest) = count(size, HEAD, stride, stride);
        let notes = cut(frames.len(), size, rest, stride).into_iter().collect();
        let layout = Layout::new(AtomsLayout::of(&Bare, n_atoms));
        Opened::computed(source, size, options, (layout, frames, notes))
    }

    fn code(&self) -> u8 {
        201
    }

    fn layout(&self, bytes: &[u8]) -> Option<Layout> {
        Some(Layout::new(AtomsLayout::of(&Bare, n_atoms_of(bytes)?)))
    }
}

#[derive(Debug)]
pub struct Loose;

impl Format for Loose {
    fn name(&self) -> &'static str {
        "LOOSE"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["loose"]
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reads: Fields::POSITIONS,
            varying_atoms: true,
            ..Abilities::default()
        }
    }

    fn probe(&self, head: &[u8]) -> bool {
        head.starts_with(b"LOOS")
    }

    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
        let (mut borders, mut counts) = (vec![HEAD], Vec::new());
        let mut at = HEAD;
        while at < size {
            let mut number = [0; 4];
            source.read_at(at, &mut number)?;
            let n_atoms = u32::from_le_bytes(number);
            at += 4 + ATOM * u64::from(n_atoms);
            if at > size {
                let fault = Fault::bad(0, "atoms that the file can hold", n_atoms);
                let frame = Some(counts.len() as u64);
                let start = borders[counts.len()];
                return Err(Error::damaged(source.path(), frame, start, 4, fault));
            }
            borders.push(at);
            counts.push(n_atoms);
        }
        let layout = Layout::new(AtomsLayout::of(&Loose, counts[0] as usize));
        let frames = Frames::Listed(borders);
        let opened = Opened::computed(source, size, options, (layout, frames, Vec::new()))?;
        let varies = counts.iter().any(|&n| n != counts[0]);
        Ok(Opened {
            atom_counts: varies.then_some(counts),
            ..opened
        })
    }

    fn code(&self) -> u8 {
        202
    }

    fn layout(&self, bytes: &[u8]) -> Option<Layout> {
        Some(Layout::new(AtomsLayout::of(&Loose, n_atoms_of(bytes)?)))
    }
}

#[derive(Debug, Clone, Copy)]
struct AtomsLayout {
    format: &'static dyn Format,
    n_atoms: usize,
    /// Size of the bytes of a frame before its first atom.
    before: u64,
}

impl AtomsLayout {
    fn of(format: &'static dyn Format, n_atoms: usize) -> AtomsLayout {
        let before = if format.abilities().varying_atoms {
            4
        } else {
            0
        };
        AtomsLayout {
            format,
            n_atoms,
            before,
        }
    }
}

impl FileLayout for AtomsLayout {
    fn format(&self) -> &'static dyn Format {
        self.format
    }

    fn n_atoms(&self) -> usize {
        self.n_atoms
    }

    fn of_frame(&self, n_atoms: usize, size: u64) -> Option<Layout> {
        let fits = self.before + ATOM * n_atoms as u64 == size;
        fits.then(|| Layout::new(AtomsLayout { n_atoms, ..*self }))
    }

    fn start(&self) -> u64 {
        HEAD
    }

    fn to_bytes(&self) -> Vec<u8> {
        (self.n_atoms as u64).to_le_bytes().to_vec()
    }

    fn decoder(&self, atoms: Atoms, _wanted: Fields) -> Result<Box<dyn Decoder>> {
        assert_eq!(atoms.len(), self.n_atoms, "these decode all atoms");
        Ok(Box::new(AtomsDecoder {
            layout: *self,
            run: [Run { start: 0, len: 0 }],
        }))
    }

    fn times(&self, _source: &dyn Source, _size: u64, frames: &Frames) -> Result<Times> {
        Ok(Times {
            times: (0..frames.len()).map(|k| k as f64).collect(),
            steps: vec![0; frames.len() as usize],
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct AtomsDecoder {
    layout: AtomsLayout,
    run: [Run; 1],
}

impl Decoder for AtomsDecoder {
    fn runs(&mut self, _frame: u64, size: u64) -> &[Run] {
        self.run[0].len = size;
        &self.run
    }

    fn decode(
        &mut self,
        frame: u64,
        size: u64,
        bytes: &[u8],
        out: FrameOut<'_>,
    ) -> Result<(), Fault> {
        let AtomsLayout {
            n_atoms, before, ..
        } = self.layout;
        if size != before + ATOM * n_atoms as u64 {
            return Err(Fault::bad(
                0,
                format!("a frame of {n_atoms} atoms"),
                "others",
            ));
        }
        *out.fields = Fields::POSITIONS;
        *out.cell = UnitCell::NONE.row();
        (*out.time, *out.step) = (frame as f64, 0);
        let numbers = bytes[before as usize..].chunks_exact(4).map(float);
        for (position, x) in out.positions.iter_mut().zip(numbers) {
            *position = x;
        }
        Ok(())
    }
}
