//! Amber NetCDF as a format of the registry.

use std::any::Any;
use std::ops::Range;

use super::{Arrangement, Layout, NetcdfDecoder, NetcdfEncoder};
use crate::atom_set::Atoms;
use crate::error::Result;
use crate::format::{
    self, Abilities, EncoderSettings, FileLayout, Format, Frames, OpenOptions, Opened, Times,
    unsupported,
};
use crate::index::fixed_size::{count, cut, miscounted, read_each, read_head};
use crate::source::Source;
use crate::{Decoder, Encoder, Fields};

/// Amber's conventions in NetCDF's classic formats.
#[derive(Debug)]
pub struct Netcdf3;

/// The name of the variant that is always written as CDF-5.
const CDF5: &str = "CDF-5";

impl Format for Netcdf3 {
    fn name(&self) -> &'static str {
        "NetCDF"
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["NCDF", "NC", CDF5]
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["nc", "ncdf"]
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            reads: Fields::ALL,
            writes: Fields::ALL,
            equal_frames: true,
            ..Abilities::default()
        }
    }

    fn probe(&self, head: &[u8]) -> bool {
        [b"CDF\x01", b"CDF\x02", b"CDF\x05"]
            .iter()
            .any(|magic| head.starts_with(*magic))
    }

    /// The number of records.
    fn counts(&self, head: &[u8]) -> Vec<Range<usize>> {
        let count = match head {
            [b'C', b'D', b'F', 5, ..] => Some(4..12),
            [b'C', b'D', b'F', ..] => Some(4..8),
            _ => None,
        };
        count.into_iter().collect()
    }

    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened> {
        let layout = read_head(source, size, Layout::parse)?
            .map_err(|what| unsupported(source.path(), what))?;
        let (start, frame_size) = (layout.start(), layout.frame_size());
        let mut notes = Vec::new();
        let frames = match layout.arrangement() {
            Arrangement::Records { n_claimed } => {
                let (frames, rest) = count(size, start, frame_size, frame_size);
                let claimed = n_claimed.and_then(|n| i64::try_from(n).ok());
                notes.extend(claimed.and_then(|claimed| miscounted(frames.len(), claimed)));
                notes.extend(cut(frames.len(), size, rest, frame_size));
                frames
            }
            Arrangement::Arrays { n, n_claimed } => {
                notes.extend(miscounted(n, i64::try_from(n_claimed).unwrap_or(i64::MAX)));
                Frames::Shared {
                    start,
                    size: frame_size,
                    n,
                }
            }
        };
        if let Some(dt) = layout.dt() {
            notes.push(format!(
            "the file holds no times; its frames count as {dt} ps apart; give dt= (--dt) to say \
             better"
        ));
        }
        let found = (format::Layout::new(layout), frames, notes);
        Opened::computed(source, size, options, found)
    }

    fn code(&self) -> u8 {
        4
    }

    fn layout(&self, bytes: &[u8]) -> Option<format::Layout> {
        Layout::from_bytes(bytes).map(format::Layout::new)
    }

    fn encoder(&self, settings: &EncoderSettings<'_>) -> Result<Box<dyn Encoder>, String> {
        let encoder = NetcdfEncoder::new(settings.n_atoms, settings.has_cell, settings.fields)?;
        Ok(Box::new(match settings.name {
            CDF5 => encoder.as_cdf5(),
            _ => encoder,
        }))
    }
}

impl FileLayout for Layout {
    fn format(&self) -> &'static dyn Format {
        &Netcdf3
    }

    fn n_atoms(&self) -> usize {
        self.n_atoms()
    }

    fn fields(&self) -> Fields {
        self.fields()
    }

    fn start(&self) -> u64 {
        self.start()
    }

    fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes()
    }

    fn decoder(&self, atoms: Atoms, wanted: Fields) -> Result<Box<dyn Decoder>> {
        Ok(Box::new(NetcdfDecoder::new(self.clone(), atoms, wanted)))
    }

    fn times(&self, source: &dyn Source, _size: u64, frames: &Frames) -> Result<Times> {
        let n = frames.len();
        let mut times = Vec::new();
        if let Some((start, width, step)) = self.times_at() {
            read_each(source, start, width, step, n, |bytes| {
                times.push(self.time(times.len() as u64, bytes));
            })?;
        } else {
            times.extend((0..n).map(|frame| self.time(frame, &[])));
        }
        Ok(Times {
            times,
            steps: (0..n).map(|frame| self.step(frame)).collect(),
        })
    }

    fn dt(&self) -> Option<f64> {
        self.dt()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
