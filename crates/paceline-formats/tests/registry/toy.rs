//! Toy format that uses only the public interface of the crate. A file contains "TOY!", the number
//! of atoms, and for each frame the time and the positions, all 32-bit and little-endian.

use std::any::Any;

use paceline_formats::atom_set::Atoms;
use paceline_formats::error::{Error, Fault, Result};
use paceline_formats::format_interface::{
    Abilities, EncoderSettings, FileLayout, Format, Frames, Layout, OpenOptions, Opened, Times,
};
use paceline_formats::index::fixed_size::{count, cut, read_each, read_head};
use paceline_formats::source::Source;
use paceline_formats::{Decoder, Encoder, Fields, FrameIn, FrameOut, Run, Series, UnitCell};

const MAGIC: &[u8; 4] = b"TOY!";
const HEAD: u64 = 8;

#[derive(Debug)]
pub struct Toy;

impl Format for Toy {
    fn name(&self) -> &'static str {
        "TOY"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["toy"]
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reads: Fields::POSITIONS,
            writes: Fields::POSITIONS,
            equal_frames: true,
            appends: true,
            ..Abilities::default()
        }
    }

    fn probe(&self, head: &[u8]) -> bool {
        head.starts_with(MAGIC)
    }

    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
        let layout = read_head(source, size, ToyLayout::parse)?;
        let stride = layout.frame_size();
        let (frames, rest) = count(size, HEAD, stride, stride);
        let notes = cut(frames.len(), size, rest, stride).into_iter().collect();
        Opened::computed(source, size, options, (Layout::new(layout), frames, notes))
    }

    fn code(&self) -> u8 {
        200
    }

    fn layout(&self, bytes: &[u8]) -> Option<Layout> {
        let n_atoms = u32::from_le_bytes(bytes.try_into().ok()?);
        Some(Layout::new(ToyLayout { n_atoms }))
    }

    fn encoder(&self, settings: &EncoderSettings<'_>) -> Result<Box<dyn Encoder>, String> {
        let n_atoms = u32::try_from(settings.n_atoms).map_err(|error| error.to_string())?;
        Ok(Box::new(ToyLayout { n_atoms }))
    }
}

#[derive(Debug, Clone, Copy)]
struct ToyLayout {
    n_atoms: u32,
}

impl ToyLayout {
    fn parse(head: &[u8], _size: u64) -> Result<ToyLayout, Fault> {
        let number = head.get(4..8).and_then(|bytes| bytes.try_into().ok());
        let n_atoms = number.ok_or(Fault::Short { needed: 8 })?;
        Ok(ToyLayout {
            n_atoms: u32::from_le_bytes(n_atoms),
        })
    }

    fn frame_size(&self) -> u64 {
        4 + 12 * u64::from(self.n_atoms)
    }
}

impl FileLayout for ToyLayout {
    fn format(&self) -> &'static dyn Format {
        &Toy
    }

    fn n_atoms(&self) -> usize {
        self.n_atoms as usize
    }

    fn start(&self) -> u64 {
        HEAD
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.n_atoms.to_le_bytes().to_vec()
    }

    fn decoder(&self, atoms: Atoms, wanted: Fields) -> Result<Box<dyn Decoder>> {
        Ok(Box::new(ToyDecoder {
            atoms: atoms.only_if(wanted.positions),
            run: [Run { start: 0, len: 0 }],
        }))
    }

    fn times(&self, source: &dyn Source, _size: u64, frames: &Frames) -> Result<Times> {
        let mut times = Times::default();
        read_each(source, HEAD, 4, self.frame_size(), frames.len(), |bytes| {
            times.times.push(float(bytes).into());
            times.steps.push(times.steps.len() as i64);
        })?;
        Ok(times)
    }

    fn head(&self, source: &dyn Source, _first: u64, _n_frames: u64) -> Result<Option<Vec<u8>>> {
        let mut head = vec![0; HEAD as usize];
        source.read_at(0, &mut head)?;
        Ok(Some(head))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Encoder for ToyLayout {
    fn head(&self, _series: &Series) -> Vec<u8> {
        [*MAGIC, self.n_atoms.to_le_bytes()].concat()
    }

    fn encode(&mut self, frame: &FrameIn<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
        bytes.extend((frame.time as f32).to_le_bytes());
        for position in frame.positions {
            bytes.extend(position.to_le_bytes());
        }
        Ok(())
    }
}

struct ToyDecoder {
    atoms: Atoms,
    run: [Run; 1],
}

impl Decoder for ToyDecoder {
    fn runs(&mut self, _frame: u64, size: u64) -> &[Run] {
        self.run[0].len = size;
        &self.run
    }

    fn decode(
        &mut self,
        frame: u64,
        _size: u64,
        bytes: &[u8],
        out: FrameOut<'_>,
    ) -> Result<(), Fault> {
        *out.fields = Fields::POSITIONS;
        *out.cell = UnitCell::NONE.row();
        *out.time = float(bytes).into();
        *out.step = frame as i64;
        let stored: Vec<f32> = bytes[4..].chunks_exact(4).map(float).collect();
        let runs = self.atoms.runs().iter();
        let wanted = runs.flat_map(|&(first, n)| &stored[3 * first..3 * (first + n)]);
        for (position, &x) in out.positions.iter_mut().zip(wanted) {
            *position = x;
        }
        Ok(())
    }
}

pub fn float(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Return true for the error of a file whose format is not in the registry.
pub fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Unsupported { what, .. } if what.contains("TOY!"))
}
