//! Interface between a format and the rest of the crate: a format recognises, indexes, decodes and
//! encodes its files.
//!
//! A new format implements [`Format`] and [`FileLayout`] in its own folder, and is added to the
//! list of formats, [`STANDARD`](crate::format_list::STANDARD).

use std::any::Any;
use std::fmt::Debug;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::atom_set::Atoms;
use crate::disk_cache::DiskCache;
use crate::error::{Error, Result};
use crate::fingerprint::{self, Fingerprint, Samples, VerifiedSource};
use crate::source::Source;
use crate::{Decoder, Encoder, Fields};

/// Trajectory format.
pub trait Format: Debug + Sync {
    /// Return the usual name, which messages and encoders use.
    fn name(&self) -> &'static str;

    /// Return the name in MDAnalysis.
    fn mdanalysis_name(&self) -> &'static str {
        self.name()
    }

    /// Return other names in MDAnalysis, and names of variants: see [`EncoderSettings::name`].
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Return the extensions of file names, in lowercase.
    fn extensions(&self) -> &'static [&'static str];

    /// Return the usual names of files that have no extension.
    fn file_names(&self) -> &'static [&'static str] {
        &[]
    }

    /// Return the possible content of files, and the content that the encoder can write.
    fn abilities(&self) -> Abilities;

    /// Return true if a file with these first [`HEAD_LEN`] bytes (or fewer) has this format.
    fn probe(&self, head: &[u8]) -> bool;

    /// Return the byte ranges in the header that change when the file grows, such as the number of
    /// frames.
    fn counts(&self, _head: &[u8]) -> Vec<Range<usize>> {
        Vec::new()
    }

    /// Find the frames of a recognised file in its first `size` bytes.
    ///
    /// # Errors
    /// Errors of [`index::open`](crate::index::open).
    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened>;

    /// Return the byte that identifies the format in a saved layout. Formats may share a byte if
    /// their layouts can be distinguished.
    fn code(&self) -> u8;

    /// Parse the result of [`FileLayout::to_bytes`]; `None` for invalid bytes.
    fn layout(&self, bytes: &[u8]) -> Option<Layout>;

    /// Create an encoder. The fields must be a subset of those that the format can write.
    ///
    /// # Errors
    /// A message with the reason why such files cannot be written.
    fn encoder(&self, settings: &EncoderSettings<'_>) -> Result<Box<dyn Encoder>, String> {
        Err(format!("paceline does not write {}", settings.name))
    }
}

/// Maximum number of bytes that [`Format::probe`] examines. It suffices for five lines of
/// DL_POLY's maximum length, 200 bytes.
pub const HEAD_LEN: usize = 1024;

/// Abilities of a format: possible content of its files, and supported operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Abilities {
    /// Fields that frames may contain.
    pub reads: Fields,
    /// Fields that the encoder writes; none without an encoder.
    pub writes: Fields,
    /// True if the fields may differ from frame to frame.
    pub mixed_fields: bool,
    /// True if all frames have the same size, and all or none have a cell. The offset of a frame is
    /// then known before it is encoded.
    pub equal_frames: bool,
    /// True if the header states a single time between frames, which all frames must have.
    pub one_time_step: bool,
    /// True if each frame contains λ of a free-energy calculation.
    pub lambda: bool,
    /// True if frames contain cell vectors, so that cells may have any orientation.
    pub stores_cell_vectors: bool,
    /// True if the precision of positions can be chosen.
    pub precision: bool,
    /// True if the bytes of frames can be copied into another file, or appended to a file.
    pub appends: bool,
    /// True if files are text.
    pub is_text: bool,
    /// True if files may contain step numbers instead of times. If the user supplies `dt`, it is
    /// then the time between steps, and not between frames.
    pub times_are_steps: bool,
    /// True if numbers may have several unit styles, and some files do not state the style: see
    /// [`OpenOptions::units`].
    pub has_units: bool,
    /// True if files do not state the number of atoms: see [`OpenOptions::n_atoms`].
    pub needs_n_atoms: bool,
    /// True if the number of atoms may vary from frame to frame: see [`Opened::atom_counts`].
    pub varying_atoms: bool,
}

/// State of the times of a file's frames: in ps, in an unknown unit, or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clock {
    /// Times are in ps.
    Known,
    /// Times are ordered, but their unit is unknown. The text is the reason.
    Unscaled(String),
    /// The file has no times, so that frame numbers replace them. The text is the reason.
    Counted(String),
}

impl Clock {
    /// Return the reason why times in ps are not known; `None` if they are known.
    pub fn doubt(&self) -> Option<&str> {
        match self {
            Clock::Known => None,
            Clock::Unscaled(why) | Clock::Counted(why) => Some(why),
        }
    }
}

/// Names and values of the properties of a file that are compared before files are joined.
pub type Traits = Vec<(String, String)>;

/// Beginning of the names of those traits that may differ between files that are joined.
pub const REMARK: &str = "attribute ";

/// Layout of a file: all data that a worker needs to decode a frame, in addition to its bytes.
pub trait FileLayout: Debug + Send + Sync {
    /// Return the format of the file.
    fn format(&self) -> &'static dyn Format;

    /// Return the number of atoms of a frame; if it varies, that of the first frame.
    fn n_atoms(&self) -> usize;

    /// Return the layout of a frame of `size` bytes with another number of atoms. `None` if the
    /// format has a fixed number of atoms, or if the bytes are too few for the atoms.
    fn of_frame(&self, _n_atoms: usize, _size: u64) -> Option<Layout> {
        None
    }

    /// Return the fields that frames may contain.
    fn fields(&self) -> Fields {
        self.format().abilities().reads
    }

    /// Return the offset of the first frame, if frames are consecutive.
    fn start(&self) -> u64 {
        0
    }

    /// Return the traits (name and value), in addition to format and number of atoms, that files
    /// must share to be joined. Traits whose names begin with [`REMARK`] may differ; the joined
    /// file has those of the first file.
    ///
    /// # Errors
    /// Errors of the source.
    fn traits(&self, _source: &dyn Source) -> Result<Traits> {
        Ok(Vec::new())
    }

    /// Serialise the layout.
    fn to_bytes(&self) -> Vec<u8>;

    /// Create a decoder of the fields `wanted` of `atoms`. The caller must check that `atoms` is a
    /// selection of [`FileLayout::n_atoms`] atoms; the decoders of some formats panic otherwise.
    ///
    /// # Errors
    /// Errors of the format. The formats of this crate return none.
    fn decoder(&self, atoms: Atoms, wanted: Fields) -> Result<Box<dyn Decoder>>;

    /// Return time and step of each of `frames`, read from the first `size` bytes of `source`.
    ///
    /// # Errors
    /// [`Error::Changed`] if the frames are no longer at these offsets, and errors of the source.
    fn times(&self, source: &dyn Source, size: u64, frames: &Frames) -> Result<Times>;

    /// Create the header of a file to which `n_frames` frames are copied, starting at frame
    /// `first`. `None` if the bytes of frames in this format cannot be copied.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if these frames cannot be copied, and errors of the source.
    fn head(&self, _source: &dyn Source, _first: u64, _n_frames: u64) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Return the time between frames according to the header, ps; `None` if the header does not
    /// state it.
    fn dt(&self) -> Option<f64> {
        None
    }

    /// Return the number from which frames are counted if times are computed from frame numbers:
    /// the time of the first frame, divided by the time between frames.
    fn first(&self) -> f64 {
        0.0
    }

    /// Return whether the times are known, and if not, the reason.
    fn clock(&self) -> Clock {
        Clock::Known
    }

    /// If the unit of lengths is unknown, so that Å is assumed, return the reason; otherwise
    /// `None`.
    fn length_doubt(&self) -> Option<&'static str> {
        None
    }

    /// Convert the time of a frame to ps. `found` is the number that a scan found in the file, or
    /// that a saved index contains.
    fn time_of(&self, found: f64) -> f64 {
        found
    }

    /// Return the layout itself, so that its own format can downcast it.
    fn as_any(&self) -> &dyn Any;
}

/// Layout of a file of any format.
#[derive(Debug, Clone)]
pub struct Layout(Arc<dyn FileLayout>);

impl Layout {
    const VERSION: u8 = 1;

    /// Wrap the layout of a file, so that clones share it.
    pub fn new(layout: impl FileLayout + 'static) -> Self {
        Layout(Arc::new(layout))
    }

    /// Return the layout as type `T`; `None` if the layout is that of another format.
    pub fn downcast<T: 'static>(&self) -> Option<&T> {
        self.0.as_any().downcast_ref()
    }

    /// Return the usual name of the format.
    pub fn name(&self) -> &'static str {
        self.0.format().name()
    }

    /// Return all traits (name and value) that files must share to be joined.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn traits(&self, source: &dyn Source) -> Result<Traits> {
        let mut traits = vec![
            ("format".to_owned(), self.name().to_owned()),
            ("atoms".to_owned(), self.n_atoms().to_string()),
        ];
        traits.extend(self.0.traits(source)?);
        Ok(traits)
    }

    /// Serialise the layout: a version, the format, and the format's data.
    pub fn to_bytes(&self) -> Vec<u8> {
        [
            &[Layout::VERSION, self.0.format().code()],
            &self.0.to_bytes()[..],
        ]
        .concat()
    }
}

impl std::ops::Deref for Layout {
    type Target = dyn FileLayout;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PartialEq for Layout {
    fn eq(&self, other: &Layout) -> bool {
        self.to_bytes() == other.to_bytes()
    }
}

/// Parse the number of atoms, for formats whose serialised layout contains nothing else. `None` for
/// invalid bytes, or if the number needs more than 31 bits, which is the limit of these formats.
pub fn n_atoms_of(bytes: &[u8]) -> Option<usize> {
    let n_atoms = u64::from_le_bytes(bytes.try_into().ok()?);
    Some(i32::try_from(n_atoms).ok()? as usize)
}

/// Settings of an encoder. Start from [`EncoderSettings::new`], since fields may be added.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EncoderSettings<'a> {
    /// Name of the format, or an alias (see [`Format::aliases`]), which may denote a variant.
    pub name: &'a str,
    /// Number of atoms in a frame.
    pub n_atoms: usize,
    /// Precision, for formats that support it; `None` for the usual precision of the format.
    pub precision: Option<f32>,
    /// True if frames have cells.
    pub has_cell: bool,
    /// Fields to write.
    pub fields: Fields,
}

impl<'a> EncoderSettings<'a> {
    /// Create settings to write the positions of `n_atoms` atoms, and cells, in the usual precision
    /// of the format.
    pub fn new(name: &'a str, n_atoms: usize) -> Self {
        EncoderSettings {
            name,
            n_atoms,
            precision: None,
            has_cell: true,
            fields: Fields::POSITIONS,
        }
    }
}

/// Registry of formats. It finds a format by its name, or by the first bytes of a file.
#[derive(Debug)]
pub struct Registry {
    formats: &'static [&'static dyn Format],
}

impl Registry {
    /// Create a registry of these formats. Messages list formats in this order.
    pub const fn new(formats: &'static [&'static dyn Format]) -> Self {
        Registry { formats }
    }

    /// All formats, in their order.
    pub fn formats(&self) -> impl Iterator<Item = &'static dyn Format> + use<> {
        self.formats.iter().copied()
    }

    /// Recognise a file by its first bytes. The file name is never used.
    pub fn detect(&self, head: &[u8]) -> Option<&'static dyn Format> {
        let head = &head[..head.len().min(HEAD_LEN)];
        self.formats().find(|format| format.probe(head))
    }

    /// Parse the result of [`Layout::to_bytes`]; `None` for invalid bytes.
    pub fn layout(&self, bytes: &[u8]) -> Option<Layout> {
        let &[Layout::VERSION, code, ref payload @ ..] = bytes else {
            return None;
        };
        let known = self.formats().filter(|format| format.code() == code);
        known.into_iter().find_map(|format| format.layout(payload))
    }

    /// Create an encoder of the format with this name or alias.
    ///
    /// # Errors
    /// A message with the reason why such files cannot be written.
    pub fn encoder(&self, settings: &EncoderSettings<'_>) -> Result<Box<dyn Encoder>, String> {
        let &EncoderSettings { name, fields, .. } = settings;
        let format = self.named(name);
        let abilities = format.map(Format::abilities).unwrap_or_default();
        if settings.precision.is_some() && !abilities.precision {
            return Err(format!("the precision of {name} cannot be chosen"));
        }
        match format {
            Some(format) if abilities.writes != Fields::default() => {
                match fields.beyond(abilities.writes) {
                    Some(field) => Err(format!("{name} holds no {field}")),
                    None if fields == Fields::default() && !abilities.mixed_fields => {
                        Err(format!("there are no fields to write to {name}"))
                    }
                    None => format.encoder(settings),
                }
            }
            _ => Err(format!("paceline does not write {name}")),
        }
    }

    /// Return the format with this name or alias.
    pub fn named(&self, name: &str) -> Option<&'static dyn Format> {
        self.formats()
            .find(|format| format.name() == name || format.aliases().contains(&name))
    }

    /// Return the names of all formats whose abilities meet a condition.
    pub fn names(&self, holds: impl Fn(Abilities) -> bool) -> Vec<&'static str> {
        let some = self.formats().filter(|format| holds(format.abilities()));
        some.map(Format::name).collect()
    }

    /// Compute the fingerprint of the first `size` bytes of `source`, and its samples.
    ///
    /// # Errors
    /// [`Error::Changed`] if the source has fewer bytes.
    pub fn samples(&self, source: &dyn Source, size: u64) -> Result<Samples> {
        Samples::of(source, size, &|head| self.counts(head))
    }

    /// Return true if a few samples of an object in an object store have the hashes in `digests`,
    /// which were computed from a copy of the object. The content is compared even if the store
    /// identifies the version.
    ///
    /// # Errors
    /// Errors of the source.
    pub(crate) fn has_samples(
        &self,
        source: &dyn Source,
        size: u64,
        digests: &[u64],
    ) -> Result<bool> {
        fingerprint::has_samples(source, size, digests, &|head| self.counts(head))
    }

    /// Check that `source` still begins with the fingerprinted bytes. The source may have grown.
    ///
    /// # Errors
    /// [`Error::Changed`] if the bytes have changed.
    pub fn verify(&self, source: &dyn Source, fingerprint: &Fingerprint) -> Result<()> {
        fingerprint.verify(source, &|head| self.counts(head))
    }

    /// Create a source that compares the bytes read from `source` with the samples of the expected
    /// file.
    ///
    /// # Errors
    /// [`Error::Changed`] if the source has fewer bytes, and errors of the source.
    pub fn verified<S: Source>(
        &'static self,
        source: S,
        samples: Samples,
    ) -> Result<VerifiedSource<S>> {
        VerifiedSource::new(source, samples, Box::new(|head| self.counts(head)))
    }

    fn counts(&self, head: &[u8]) -> Vec<Range<usize>> {
        let format = self.detect(head);
        format.map_or_else(Vec::new, |format| format.counts(head))
    }
}

/// Function that is called with the number of bytes scanned so far, and with the total number.
/// [`ControlFlow::Break`] ends the scan.
pub type Progress<'a> = dyn Fn(u64, u64) -> ControlFlow<()> + 'a;

/// Options for opening a file. Start from [`OpenOptions::new`], since fields may be added.
#[non_exhaustive]
pub struct OpenOptions<'a> {
    /// Formats to recognise.
    pub registry: &'static Registry,
    /// Paths of the saved index, in order of preference: see
    /// [`index_files`](crate::index::index_files). Without paths, the index is not saved.
    pub index_files: Vec<PathBuf>,
    /// True to scan the file even if an index is saved.
    pub refresh: bool,
    /// If set, only this number of bytes in the middle of a long file is scanned for frames. The
    /// index is not saved.
    pub sample: Option<u64>,
    /// Unit style of the file's numbers, for formats in which some files do not state it. It
    /// overrides a style that the file states.
    pub units: Option<&'a str>,
    /// Number of atoms of a frame, for formats whose files do not state it; other formats ignore
    /// it.
    pub n_atoms: Option<usize>,
    /// Cache that stores the scanned bytes of an object in an object store, so that they are
    /// requested only once. If the cache cannot be used, the scan proceeds without it.
    pub cache: Option<DiskCache>,
    /// Number of threads that scan a long file.
    pub n_threads: usize,
    /// Function that is called regularly from the calling thread.
    pub progress: &'a Progress<'a>,
}

impl OpenOptions<'_> {
    /// Recognise the formats of a registry; scan on one thread, and do not save the index.
    pub fn new(registry: &'static Registry) -> Self {
        OpenOptions {
            registry,
            index_files: Vec::new(),
            refresh: false,
            sample: None,
            units: None,
            n_atoms: None,
            cache: None,
            n_threads: 1,
            progress: &|_, _| ControlFlow::Continue(()),
        }
    }
}

/// Origin of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Computed from frame sizes.
    Computed,
    /// From a scan of the whole file.
    Scanned,
    /// From a saved index and a scan of appended bytes.
    Extended,
    /// From a saved index.
    Loaded,
    /// From some frames in the middle of the file. The file has further frames.
    Sampled,
}

/// File whose frames have been found.
#[derive(Debug)]
pub struct Opened {
    /// Layout of the frames, which determines how they are decoded.
    pub layout: Layout,
    /// Offsets and sizes of the frames.
    pub frames: Frames,
    /// Samples by which workers verify the file.
    pub samples: Samples,
    /// Warnings about the file.
    pub notes: Vec<String>,
    /// Numbers of damaged frames that a scan found.
    pub damaged: Vec<u64>,
    /// Number of atoms of each frame, if it varies; 0 if unknown in a damaged frame.
    pub atom_counts: Option<Vec<u32>>,
    /// Method by which the frames were found.
    pub origin: Origin,
    /// Path where the index is saved; `None` if it is not saved.
    pub file: Option<PathBuf>,
    /// Times found by a scan; `None` if they must be read from the file or from the saved index.
    pub times: Option<Times>,
}

impl Opened {
    /// Create the result for a file whose frame offsets are computed: `found` contains its layout,
    /// its frames and the warnings.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn computed(
        source: &dyn Source,
        size: u64,
        options: &OpenOptions<'_>,
        found: (Layout, Frames, Vec<String>),
    ) -> Result<Opened> {
        let (layout, frames, notes) = found;
        Ok(Opened {
            samples: options.registry.samples(source, size)?,
            layout,
            frames,
            notes,
            damaged: Vec::new(),
            atom_counts: None,
            origin: Origin::Computed,
            file: None,
            times: None,
        })
    }
}

/// Times and step numbers of the frames of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    /// Times, ps; NaN if unknown in a damaged frame.
    pub times: Vec<f64>,
    /// Step numbers of the simulation; 0 if unknown.
    pub steps: Vec<i64>,
}

/// Offsets of the frames of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frames {
    /// Offset of each frame, and end of the last one.
    Listed(Vec<u64>),
    /// Equal sizes, except possibly for the first frame.
    Regular {
        /// Offset of the first frame, bytes.
        first: u64,
        /// Size of the first frame, bytes.
        first_size: u64,
        /// Size of each other frame, bytes.
        stride: u64,
        /// Number of frames.
        n: u64,
    },
    /// All frames share one byte range. The parts of a frame are at different offsets in this
    /// range.
    Shared {
        /// Offset of the range.
        start: u64,
        /// Size of the range, bytes.
        size: u64,
        /// Number of frames.
        n: u64,
    },
}

impl Frames {
    /// True if there is no frame.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of frames.
    pub fn len(&self) -> u64 {
        match self {
            Frames::Listed(borders) => borders.len().saturating_sub(1) as u64,
            Frames::Regular { n, .. } | Frames::Shared { n, .. } => *n,
        }
    }

    /// Return offset and size of a frame, bytes.
    ///
    /// # Panics
    /// If the frame does not exist.
    pub fn extent(&self, frame: u64) -> (u64, u64) {
        assert!(frame < self.len(), "frame {frame} of {}", self.len());
        match self {
            Frames::Listed(borders) => {
                let (start, end) = (borders[frame as usize], borders[frame as usize + 1]);
                (start, end - start)
            }
            Frames::Regular {
                first, first_size, ..
            } if frame == 0 => (*first, *first_size),
            Frames::Regular {
                first,
                first_size,
                stride,
                ..
            } => (first + first_size + (frame - 1) * stride, *stride),
            Frames::Shared { start, size, .. } => (*start, *size),
        }
    }
}

/// Create the error for a file that uses a feature that paceline does not support.
pub fn unsupported(path: &Path, what: String) -> Error {
    Error::Unsupported {
        path: path.to_owned(),
        what,
    }
}
