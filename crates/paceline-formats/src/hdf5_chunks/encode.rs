//! Encoding of chunks of HDF5 datasets with the shape (frames, atoms, 3): rounding, shuffling,
//! compression.
//!
//! A chunk contains `frames` × `atoms` × 3 little-endian numbers in C order. A chunk that extends
//! beyond the last frame or atom is padded with zeros, as in HDF5. Shuffling stores the first bytes
//! of all numbers, then all second bytes, and so on. Compressed chunks are whole streams: zlib, a
//! Zstandard frame with its size and a checksum, LZ4 blocks with a header, or LZF.
//!
//! Numbers are rounded to multiples of the largest power of two that does not exceed the requested
//! precision. The error is at most half of the precision, as it would be for multiples of the
//! precision itself. Powers of two are used because the last bits of each number then become zeros,
//! which compress well.

use std::ops::Range;

use super::decompress::Method;
use super::lzf;
use crate::frame_codec::check_finite;

/// Number of values that are stored per atom: x, y and z.
const COMPONENTS: usize = 3;

/// Maximum memory that each buffer retains for the next block, bytes.
const KEPT: usize = 64 << 20;

/// Maximum size of an LZ4 chunk in HDF5, bytes; `LZ4_BLOCK` is the maximum size of its blocks.
const LZ4_CHUNK: usize = i32::MAX as usize;
#[cfg(feature = "lz4")]
const LZ4_BLOCK: usize = 1 << 30;

/// Precision in which numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Float {
    /// Single precision, 4 bytes.
    F4,
    /// Double precision, 8 bytes.
    F8,
}

impl Float {
    /// Size of a number, bytes.
    pub fn size(self) -> usize {
        match self {
            Float::F4 => 4,
            Float::F8 => 8,
        }
    }
}

/// Compression of chunks, with its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Level from 1 to 9.
    Gzip(i32),
    /// Level from 1 to 19. Higher levels need hundreds of megabytes of memory per thread.
    Zstd(i32),
    /// LZ4, in HDF5's blocks; it has no levels.
    Lz4,
    /// LZF, which is part of h5py; it has no levels.
    Lzf,
}

impl Compression {
    /// Refuse an invalid level, chunks that are too large for the method, and a codec that is not
    /// included in this build.
    fn check(self, bytes: usize) -> Result<(), String> {
        let (name, method) = match self {
            Compression::Gzip(_) => ("gzip", Method::Deflate),
            Compression::Zstd(_) => ("zstd", Method::Zstd),
            Compression::Lz4 => ("LZ4", Method::Lz4),
            Compression::Lzf => ("LZF", Method::Lzf),
        };
        let built = method.check_built();
        built.map_err(|why| format!("cannot compress with {name}: {why}"))?;
        match self {
            Compression::Gzip(1..=9) | Compression::Zstd(1..=19) | Compression::Lzf => Ok(()),
            Compression::Gzip(level) => Err(format!("gzip has levels 1 to 9, not {level}")),
            Compression::Zstd(level) => Err(format!("zstd has levels 1 to 19, not {level}")),
            Compression::Lz4 if bytes <= LZ4_CHUNK => Ok(()),
            Compression::Lz4 => Err(format!(
                "LZ4 takes chunks of less than 2 GiB in HDF5, not {bytes} bytes"
            )),
        }
    }
}

/// Settings that all chunks of a dataset share. Start from [`Settings::new`], since fields may be
/// added.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Precision of the stored numbers.
    pub float: Float,
    /// Number of frames of a chunk.
    pub frames: usize,
    /// Number of atoms of a chunk.
    pub atoms: usize,
    /// True to store the first bytes of all numbers, then all second bytes, and so on, before
    /// compression.
    pub shuffle: bool,
    /// Compression of each chunk; `None` stores numbers unchanged.
    pub compression: Option<Compression>,
    /// Maximum distance between adjacent rounded values, in the unit of the stored numbers; `None`
    /// without rounding.
    pub precision: Option<f64>,
    /// Factor that multiplies numbers before they are rounded and stored.
    pub factor: f64,
    /// Name of the numbers of one atom in messages, such as "position".
    pub what: String,
}

impl Settings {
    /// Create settings for unchanged numbers in single precision, without compression.
    pub fn new(frames: usize, atoms: usize) -> Self {
        Settings {
            float: Float::F4,
            frames,
            atoms,
            shuffle: false,
            compression: None,
            precision: None,
            factor: 1.0,
            what: "position".into(),
        }
    }
}

/// Encoder of the chunks of one dataset, in any order.
#[derive(Debug)]
pub struct ChunkEncoder {
    settings: Settings,
    step: Option<f64>,
}

/// Buffers of one thread, reused for each chunk.
#[derive(Default)]
pub struct ChunkBuffers {
    plain: Vec<u8>,
    shuffled: Vec<u8>,
    /// Encoded chunks, one after another.
    pub packed: Vec<u8>,
    compressor: Option<(Compression, Box<dyn Compressor>)>,
}

impl ChunkBuffers {
    /// Clear the buffers, and free the memory of each buffer beyond `KEPT` bytes.
    pub fn tidy(&mut self) {
        for buffer in [&mut self.plain, &mut self.shuffled, &mut self.packed] {
            buffer.clear();
            buffer.shrink_to(KEPT);
        }
    }
}

impl ChunkEncoder {
    /// Check the settings, and create an encoder.
    ///
    /// # Errors
    /// A message about an impossible setting, or a codec that is not included in this build.
    pub fn new(settings: Settings) -> Result<Self, String> {
        let &Settings { frames, atoms, .. } = &settings;
        let bytes = frames
            .checked_mul(atoms)
            .and_then(|n| n.checked_mul(COMPONENTS * settings.float.size()));
        // HDF5 states the size of a chunk in 32 bits.
        let Some(bytes) = bytes.filter(|&n| n > 0 && u32::try_from(n).is_ok()) else {
            return Err(format!(
                "an HDF5 chunk must have 1 byte to 4 GB, and {frames} frames of {atoms} atoms do not"
            ));
        };
        match settings.compression {
            Some(compression) => compression.check(bytes)?,
            None if settings.shuffle => {
                return Err(
                    "shuffling alone does not reduce the size: choose a compression, too".into(),
                );
            }
            None => {}
        }
        if !(settings.factor.is_finite() && settings.factor != 0.0) {
            return Err(format!(
                "a factor must be a finite number other than 0, not {}",
                settings.factor
            ));
        }
        Ok(ChunkEncoder {
            step: settings.precision.map(step_within).transpose()?,
            settings,
        })
    }

    /// Return the settings of the dataset.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Return the power of two of which stored numbers are multiples. `None` without rounding.
    pub fn step(&self) -> Option<f64> {
        self.step
    }

    /// Number of chunks along frames and along atoms.
    pub fn grid(&self, n_frames: usize, n_atoms: usize) -> (usize, usize) {
        (
            n_frames.div_ceil(self.settings.frames),
            n_atoms.div_ceil(self.settings.atoms),
        )
    }

    /// Size of one frame in a chunk, bytes.
    pub fn frame_bytes(&self) -> usize {
        self.settings.atoms * COMPONENTS * self.settings.float.size()
    }

    /// Encode frames as chunks, and write the chunks one after another to `room.packed`. The first
    /// frame of `values` must be the first frame of a chunk. Return the size of each chunk, in C
    /// order.
    ///
    /// # Errors
    /// Index of the first frame with a number that is not finite, and a message with the atom.
    pub fn encode(
        &self,
        values: &[f32],
        n_atoms: usize,
        room: &mut ChunkBuffers,
    ) -> Result<Vec<u64>, (usize, String)> {
        self.check(values, n_atoms)?;
        let n_frames = values.len() / (COMPONENTS * n_atoms);
        let (rows, columns) = self.grid(n_frames, n_atoms);
        room.packed.clear();
        let mut sizes = Vec::with_capacity(rows * columns);
        for row in 0..rows {
            let first = row * self.settings.frames;
            let frames = first..n_frames.min(first + self.settings.frames);
            for column in 0..columns {
                room.plain.clear();
                self.put(values, n_atoms, frames.clone(), column, &mut room.plain);
                let whole = self.settings.frames * self.frame_bytes();
                room.plain.resize(whole, 0);
                sizes.push(self.pack(room) as u64);
            }
        }
        Ok(sizes)
    }

    /// Refuse values that are not finite.
    ///
    /// # Errors
    /// As [`Self::encode`].
    pub fn check(&self, values: &[f32], n_atoms: usize) -> Result<(), (usize, String)> {
        for (row, frame) in values.chunks_exact(COMPONENTS * n_atoms).enumerate() {
            check_finite(frame, &self.settings.what).map_err(|reason| (row, reason))?;
        }
        Ok(())
    }

    /// Append to `out` the numbers of `frames` that belong to the chunks in column `column`. They
    /// are uncompressed, and padded with zeros to the width of a chunk.
    pub fn put(
        &self,
        values: &[f32],
        n_atoms: usize,
        frames: Range<usize>,
        column: usize,
        out: &mut Vec<u8>,
    ) {
        let first = column * self.settings.atoms;
        let stop = n_atoms.min(first + self.settings.atoms);
        for frame in frames {
            let end = out.len() + self.frame_bytes();
            let numbers =
                &values[COMPONENTS * (frame * n_atoms + first)..][..COMPONENTS * (stop - first)];
            self.store(numbers, out);
            out.resize(end, 0);
        }
    }

    /// Append numbers in their stored form.
    fn store(&self, numbers: &[f32], out: &mut Vec<u8>) {
        let factor = self.settings.factor;
        match self.settings.float {
            Float::F4 => {
                let factor = factor as f32;
                match self.step.map(|step| step as f32) {
                    None if factor == 1.0 => append(numbers, out, f32::to_le_bytes),
                    None => append(numbers, out, |x| (x * factor).to_le_bytes()),
                    Some(step) => {
                        let large = step * (1_u32 << 23) as f32;
                        append(numbers, out, |x| round_f32(x * factor, large).to_le_bytes());
                    }
                }
            }
            Float::F8 => match self.step {
                None => append(numbers, out, |x| (f64::from(x) * factor).to_le_bytes()),
                Some(step) => {
                    let large = step * (1_u64 << 52) as f64;
                    append(numbers, out, |x| {
                        round_f64(f64::from(x) * factor, large).to_le_bytes()
                    });
                }
            },
        }
    }

    /// Append the chunk in `room.plain`, encoded, to `room.packed`; return the number of appended
    /// bytes.
    fn pack(&self, room: &mut ChunkBuffers) -> usize {
        let before = room.packed.len();
        match self.settings.compression {
            None => room.packed.extend_from_slice(&room.plain),
            Some(compression) => {
                let shuffled = self.settings.shuffle.then(|| self.settings.float.size());
                room.pack(shuffled, compression);
            }
        }
        room.packed.len() - before
    }
}

/// Compress one chunk of numbers of `width` bytes, shuffled first if `shuffle` is true. The result
/// replaces the content of `room.packed`.
///
/// # Errors
/// A message if the data cannot be compressed.
pub fn pack_chunk(
    bytes: &[u8],
    width: usize,
    shuffle: bool,
    compression: Compression,
    room: &mut ChunkBuffers,
) -> Result<(), String> {
    compression.check(bytes.len())?;
    if width == 0 || bytes.is_empty() || !bytes.len().is_multiple_of(width) {
        return Err(format!(
            "{} bytes are not a whole number of {width}-byte numbers",
            bytes.len()
        ));
    }
    room.packed.clear();
    room.plain.clear();
    room.plain.extend_from_slice(bytes);
    room.pack(shuffle.then_some(width), compression);
    Ok(())
}

impl ChunkBuffers {
    /// Compress the chunk in `plain`, and append it to `packed`. If `shuffled` contains the size of
    /// a number, shuffle the chunk first.
    fn pack(&mut self, shuffled: Option<usize>, compression: Compression) {
        let mut bytes = &self.plain;
        if let Some(width) = shuffled {
            shuffle(&self.plain, width, &mut self.shuffled);
            bytes = &self.shuffled;
        }
        let compressor = match &mut self.compressor {
            Some((made_for, compressor)) if *made_for == compression => compressor,
            other => &mut other.insert((compression, compressor(compression))).1,
        };
        compressor.append(bytes, &mut self.packed);
    }
}

/// Compressor of chunks that reuses its memory.
trait Compressor: Send + Sync {
    /// Compress a chunk, and append the result to `out`.
    fn append(&mut self, bytes: &[u8], out: &mut Vec<u8>);
}

/// Return the compressor for a compression that [`Compression::check`] accepts.
fn compressor(compression: Compression) -> Box<dyn Compressor> {
    match compression {
        #[cfg(feature = "deflate")]
        Compression::Gzip(level) => {
            let level = libdeflater::CompressionLvl::new(level).expect("a level that was checked");
            Box::new(libdeflater::Compressor::new(level))
        }
        #[cfg(feature = "zstd")]
        Compression::Zstd(level) => {
            use zstd_safe::CParameter::{ChecksumFlag, CompressionLevel};
            let mut context = zstd_safe::CCtx::create();
            for parameter in [CompressionLevel(level), ChecksumFlag(true)] {
                let set = context.set_parameter(parameter);
                set.expect("a level that was checked");
            }
            Box::new(context)
        }
        #[cfg(feature = "lz4")]
        Compression::Lz4 => Box::new(Lz4),
        Compression::Lzf => Box::new(lzf::Deflater::default()),
        #[cfg(not(all(feature = "deflate", feature = "lz4", feature = "zstd")))]
        left_out => unreachable!("{left_out:?} is refused by its check"),
    }
}

#[cfg(feature = "deflate")]
impl Compressor for libdeflater::Compressor {
    fn append(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let before = out.len();
        out.resize(before + self.zlib_compress_bound(bytes.len()), 0);
        let size = self.zlib_compress(bytes, &mut out[before..]);
        out.truncate(before + size.expect("room for what does not compress"));
    }
}

#[cfg(feature = "zstd")]
impl Compressor for zstd_safe::CCtx<'static> {
    fn append(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let before = out.len();
        out.resize(before + zstd_safe::compress_bound(bytes.len()), 0);
        let size = self.compress2(&mut out[before..], bytes);
        let size = size.map_err(zstd_safe::get_error_name);
        out.truncate(before + size.expect("memory, and room for what does not compress"));
    }
}

impl Compressor for lzf::Deflater {
    fn append(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        lzf::Deflater::append(self, bytes, out);
    }
}

/// LZ4 in HDF5's blocks; `decompress.rs` describes this format.
#[cfg(feature = "lz4")]
struct Lz4;

#[cfg(feature = "lz4")]
impl Compressor for Lz4 {
    fn append(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        use lz4_flex::block::{compress_into, get_maximum_output_size};
        out.extend((chunk.len() as u64).to_be_bytes());
        out.extend((chunk.len().min(LZ4_BLOCK) as u32).to_be_bytes());
        for block in chunk.chunks(LZ4_BLOCK) {
            let start = out.len() + size_of::<u32>();
            out.resize(start + get_maximum_output_size(block.len()), 0);
            let size =
                compress_into(block, &mut out[start..]).expect("room for what does not compress");
            let size = match size < block.len() {
                true => size,
                false => {
                    out[start..start + block.len()].copy_from_slice(block);
                    block.len()
                }
            };
            out[start - size_of::<u32>()..start].copy_from_slice(&(size as u32).to_be_bytes());
            out.truncate(start + size);
        }
    }
}

/// Return the largest power of two that does not exceed a precision.
fn step_within(precision: f64) -> Result<f64, String> {
    // The limits are far from those of 32-bit floats, so that no factor of the rounding becomes 0
    // or infinite.
    if !(1e-20..=1e20).contains(&precision) {
        return Err(format!(
            "a precision must be from 1e-20 to 1e20, not {precision}"
        ));
    }
    const EXPONENT: u64 = 0x7ff << 52;
    Ok(f64::from_bits(precision.to_bits() & EXPONENT))
}

/// Round to a multiple of `large` / 2²³. Every f32 of at least `large` is such a multiple. For a
/// smaller number, the addition of `large` removes the lower bits. `round_ties_even` would take
/// three times as long in a build for all x86-64 processors.
fn round_f32(x: f32, large: f32) -> f32 {
    let signed = large.copysign(x);
    if x.abs() < large {
        (x + signed) - signed
    } else {
        x
    }
}

/// Round to a multiple of `large` / 2⁵² in f64, by the method of [`round_f32`].
fn round_f64(x: f64, large: f64) -> f64 {
    let signed = large.copysign(x);
    if x.abs() < large {
        (x + signed) - signed
    } else {
        x
    }
}

fn append<const N: usize>(numbers: &[f32], out: &mut Vec<u8>, code: impl Fn(f32) -> [u8; N]) {
    let start = out.len();
    out.resize(start + N * numbers.len(), 0);
    let (places, _) = out[start..].as_chunks_mut::<N>();
    for (place, &number) in places.iter_mut().zip(numbers) {
        *place = code(number);
    }
}

fn shuffle(bytes: &[u8], width: usize, out: &mut Vec<u8>) {
    out.clear();
    out.resize(bytes.len(), 0);
    match width {
        4 => shuffle_by::<4>(bytes, out),
        8 => shuffle_by::<8>(bytes, out),
        _ => {
            for (k, plane) in out.chunks_exact_mut(bytes.len() / width).enumerate() {
                let bytes = bytes.iter().skip(k).step_by(width);
                plane
                    .iter_mut()
                    .zip(bytes)
                    .for_each(|(to, &from)| *to = from);
            }
        }
    }
}

fn shuffle_by<const N: usize>(bytes: &[u8], out: &mut [u8]) {
    let (numbers, _) = bytes.as_chunks::<N>();
    for (k, plane) in out.chunks_exact_mut(numbers.len()).enumerate() {
        for (byte, number) in plane.iter_mut().zip(numbers) {
            *byte = number[k];
        }
    }
}

#[cfg(all(test, feature = "deflate", feature = "lz4", feature = "zstd"))]
mod tests;
