//! The interface of a format to the rest of the crate: recognise its files, index, decode and
//! encode them.
//!
//! A new format implements [`Format`] and [`FileLayout`] in its own folder and gets one line in
//! [`registry`](crate::registry).

use std::any::Any;
use std::fmt::Debug;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::atom_set::Atoms;
use crate::error::{Error, Result};
use crate::fingerprint::{Fingerprint, Samples, VerifiedSource};
use crate::source::Source;
use crate::{Decoder, Encoder, Fields};

/// A format of trajectories.
pub trait Format: Debug + Sync {
    /// Its usual name, which messages and encoders use.
    fn name(&self) -> &'static str;

    /// Its name in MDAnalysis.
    fn mdanalysis_name(&self) -> &'static str {
        self.name()
    }

    /// Its other names in MDAnalysis, and those of its variants: see [`EncoderSettings::name`].
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Endings of its files' names, in small letters.
    fn extensions(&self) -> &'static [&'static str];

    /// Names of its files that have no ending.
    fn file_names(&self) -> &'static [&'static str] {
        &[]
    }

    /// What files of the format may hold, and which of it is written.
    fn abilities(&self) -> Abilities;

    /// Recognise a file by its first [`HEAD_LEN`] bytes, or fewer.
    fn probe(&self, head: &[u8]) -> bool;

    /// Places in a head that `probe` recognised that a growing file rewrites, such as the number of
    /// frames.
    fn counts(&self, _head: &[u8]) -> Vec<Range<usize>> {
        Vec::new()
    }

    /// Find the frames of a file that `probe` recognised, in its first `size` bytes.
    ///
    /// # Errors
    /// Errors of [`index::open`](crate::index::open).
    fn open(&self, source: &dyn Source, size: u64, options: &OpenOptions<'_>) -> Result<Opened>;

    /// Byte that tells the format in a saved layout. Formats may share one, where their layouts
    /// tell them apart.
    fn code(&self) -> u8;

    /// Parse what [`FileLayout::to_bytes`] gave; nothing for bytes that it cannot have given.
    fn layout(&self, bytes: &[u8]) -> Option<Layout>;

    /// Make an encoder. The fields are among those that the format can write.
    ///
    /// # Errors
    /// Why it cannot write such files, in a sentence.
    fn encoder(&self, settings: &EncoderSettings<'_>) -> Result<Box<dyn Encoder>, String> {
        Err(format!("paceline does not write {}", settings.name))
    }
}

/// Bytes that [`Format::probe`] looks at: of text, five lines as long as DL_POLY's longest.
pub const HEAD_LEN: usize = 1024;

/// Abilities of a format: what its files can hold, and what can be done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Abilities {
    /// Fields that its frames may hold.
    pub reads: Fields,
    /// Fields that its encoder writes; none where it has no encoder.
    pub writes: Fields,
    /// Each frame may hold other fields than the one before.
    pub mixed_fields: bool,
    /// All frames have the same size, and a cell or none: their places are known before they are
    /// encoded.
    pub equal_frames: bool,
    /// The header holds one time between frames for all of them.
    pub one_time_step: bool,
    /// Each frame holds λ of a free-energy run.
    pub lambda: bool,
    /// A cell may lie in any way: frames hold its vectors.
    pub turned_cells: bool,
    /// The precision of positions can be chosen.
    pub precision: bool,
    /// Frames can be copied as bytes into another file, or appended to one.
    pub appends: bool,
    /// Lines of text.
    pub is_text: bool,
    /// Times are numbers of steps: how long a step is, only the user can tell.
    pub times_are_steps: bool,
    /// Files may be in one of several units, and may not state which: see [`OpenOptions::units`].
    pub has_units: bool,
    /// Files do not state the number of atoms: see [`OpenOptions::n_atoms`].
    pub needs_n_atoms: bool,
    /// The number of atoms may vary from frame to frame: see [`Opened::atom_counts`].
    pub varying_atoms: bool,
}

/// What a file knows of the times of its frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clock {
    /// They are in ps.
    Known,
    /// They are in their order, but how long their unit is, is not known: why.
    Unscaled(String),
    /// It has none, and frames are counted: why.
    Counted(String),
}

impl Clock {
    /// Why times are not known, in words; nothing where they are.
    pub fn doubt(&self) -> Option<&str> {
        match self {
            Clock::Known => None,
            Clock::Unscaled(why) | Clock::Counted(why) => Some(why),
        }
    }
}

/// How a file codes its frames: all that a worker needs beside a frame's bytes to decode it.
pub trait FileLayout: Debug + Send + Sync {
    /// The format that the file has.
    fn format(&self) -> &'static dyn Format;

    /// Atoms of a frame; of the first one, where the number varies.
    fn n_atoms(&self) -> usize;

    /// Layout of a frame of another number of atoms, in `size` bytes; nothing where these cannot
    /// hold so many, or the number does not vary.
    fn of_frame(&self, _n_atoms: usize, _size: u64) -> Option<Layout> {
        None
    }

    /// Fields that frames may hold.
    fn fields(&self) -> Fields {
        self.format().abilities().reads
    }

    /// Offset of the first frame, where frames stand one behind another.
    fn start(&self) -> u64 {
        0
    }

    /// Return the traits that files must have in common, beside format and atoms, for the frames of
    /// one to continue those of the other: name and value.
    fn traits(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The layout in few bytes.
    fn to_bytes(&self) -> Vec<u8>;

    /// A decoder of the fields `wanted` of some atoms.
    ///
    /// # Errors
    /// [`Error::Argument`] for atoms of another system.
    fn decoder(&self, atoms: Atoms, wanted: Fields) -> Result<Box<dyn Decoder>>;

    /// Time and step of each of `frames`, read from the first `size` bytes of `source`.
    ///
    /// # Errors
    /// [`Error::Changed`] where the frames are at other places now, and what the source gives.
    fn times(&self, source: &dyn Source, size: u64, frames: &Frames) -> Result<Times>;

    /// Make the bytes that stand before the frames in a file of `n_frames` of them, from number
    /// `first` on; nothing where frames cannot be copied as bytes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where just these cannot be copied, and what the source gives.
    fn head(&self, _source: &dyn Source, _first: u64, _n_frames: u64) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Time between frames as the header has it, ps; none where only frames tell.
    fn dt(&self) -> Option<f64> {
        None
    }

    /// Number that the first frame counts as where times are numbers of frames.
    fn first(&self) -> f64 {
        0.0
    }

    /// What the file knows of the times of its frames.
    fn clock(&self) -> Clock {
        Clock::Known
    }

    /// Time (ps) of a frame, of the number that a scan gave for it, which a saved index keeps.
    fn time_of(&self, found: f64) -> f64 {
        found
    }

    /// The layout itself, for its own format to downcast.
    fn as_any(&self) -> &dyn Any;
}

/// The layout of a file of any format.
#[derive(Debug, Clone)]
pub struct Layout(Arc<dyn FileLayout>);

impl Layout {
    const VERSION: u8 = 1;

    /// Share a format's own layout.
    pub fn new(layout: impl FileLayout + 'static) -> Self {
        Layout(Arc::new(layout))
    }

    /// The format's own layout; nothing where it is another format's.
    pub fn downcast<T: 'static>(&self) -> Option<&T> {
        self.0.as_any().downcast_ref()
    }

    /// The format's usual name.
    pub fn name(&self) -> &'static str {
        self.0.format().name()
    }

    /// Return the traits that files must have in common for the frames of one to continue those of
    /// the other: name and value.
    pub fn traits(&self) -> Vec<(&'static str, String)> {
        let mut traits = vec![
            ("format", self.name().to_owned()),
            ("atoms", self.n_atoms().to_string()),
        ];
        traits.extend(self.0.traits());
        traits
    }

    /// The layout in few bytes: a version, the format, and what the format needs.
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

/// The number of atoms that a layout of nothing else saved, which formats count in 31 bits.
pub fn n_atoms_of(bytes: &[u8]) -> Option<usize> {
    let n_atoms = u64::from_le_bytes(bytes.try_into().ok()?);
    Some(i32::try_from(n_atoms).ok()? as usize)
}

/// The choices of an encoder. Start from [`EncoderSettings::new`]: there may be more one day.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EncoderSettings<'a> {
    /// The format's name, or one of its aliases, which may stand for a variant.
    pub name: &'a str,
    /// Number of atoms in a frame.
    pub n_atoms: usize,
    /// Precision, for formats where it can be chosen.
    pub precision: Option<f32>,
    /// True if frames have cells.
    pub has_cell: bool,
    /// Fields to write.
    pub fields: Fields,
}

impl<'a> EncoderSettings<'a> {
    /// Positions of `n_atoms` atoms and cells, in the format's usual precision.
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

/// The formats that can be opened and written.
#[derive(Debug)]
pub struct Registry {
    formats: &'static [&'static dyn Format],
}

impl Registry {
    /// A registry of these formats, in the order in which messages list them.
    pub const fn new(formats: &'static [&'static dyn Format]) -> Self {
        Registry { formats }
    }

    /// All formats, in their order.
    pub fn formats(&self) -> impl Iterator<Item = &'static dyn Format> + use<> {
        self.formats.iter().copied()
    }

    /// Recognise a file by its first bytes, never by its name.
    pub fn detect(&self, head: &[u8]) -> Option<&'static dyn Format> {
        let head = &head[..head.len().min(HEAD_LEN)];
        self.formats().find(|format| format.probe(head))
    }

    /// Parse what [`Layout::to_bytes`] gave; nothing for bytes that it cannot have given.
    pub fn layout(&self, bytes: &[u8]) -> Option<Layout> {
        let &[Layout::VERSION, code, ref payload @ ..] = bytes else {
            return None;
        };
        let known = self.formats().filter(|format| format.code() == code);
        known.into_iter().find_map(|format| format.layout(payload))
    }

    /// Make an encoder of the format that has this name or alias.
    ///
    /// # Errors
    /// Why such files cannot be written, in a sentence.
    pub fn encoder(&self, settings: &EncoderSettings<'_>) -> Result<Box<dyn Encoder>, String> {
        let &EncoderSettings { name, fields, .. } = settings;
        let format = self.named(name);
        let abilities = format.map(Format::abilities).unwrap_or_default();
        if settings.precision.is_some() && !abilities.precision {
            return Err(format!("{name} has no precision to choose"));
        }
        match format {
            Some(format) if abilities.writes != Fields::default() => {
                match fields.beyond(abilities.writes) {
                    Some(field) => Err(format!("{name} holds no {field}")),
                    None if fields == Fields::default() && !abilities.mixed_fields => {
                        Err(format!("there is nothing to write to {name}"))
                    }
                    None => format.encoder(settings),
                }
            }
            _ => Err(format!("paceline does not write {name}")),
        }
    }

    /// The format that has this name or alias.
    pub fn named(&self, name: &str) -> Option<&'static dyn Format> {
        self.formats()
            .find(|format| format.name() == name || format.aliases().contains(&name))
    }

    /// Names of all formats, of which something holds.
    pub fn names(&self, holds: impl Fn(Abilities) -> bool) -> Vec<&'static str> {
        let some = self.formats().filter(|format| holds(format.abilities()));
        some.map(Format::name).collect()
    }

    /// The fingerprint of the first `size` bytes of `source`, and its samples.
    ///
    /// # Errors
    /// [`Error::Changed`] where the source has fewer bytes.
    pub fn samples(&self, source: &dyn Source, size: u64) -> Result<Samples> {
        Samples::of(source, size, &|head| self.counts(head))
    }

    /// Make sure that `source` still begins with the bytes that a fingerprint was taken of. It may
    /// have grown.
    ///
    /// # Errors
    /// [`Error::Changed`] where it does not.
    pub fn verify(&self, source: &dyn Source, fingerprint: &Fingerprint) -> Result<()> {
        fingerprint.verify(source, &|head| self.counts(head))
    }

    /// Compare what is read of `source` with the samples of the file that it should be.
    ///
    /// # Errors
    /// [`Error::Changed`] where the source has fewer bytes, and what it gives.
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

/// Called with the bytes done and the bytes in all; [`ControlFlow::Break`] ends the scan.
pub type Progress<'a> = dyn Fn(u64, u64) -> ControlFlow<()> + 'a;

/// How to open a file. Start from [`OpenOptions::new`]: there may be more one day.
#[non_exhaustive]
pub struct OpenOptions<'a> {
    /// Formats to recognise.
    pub registry: &'static Registry,
    /// Paths where a saved index may be, or be saved, in order of preference: see
    /// [`index_files`](crate::index::index_files). With none, nothing is saved.
    pub index_files: Vec<PathBuf>,
    /// Scan again, whatever is saved.
    pub refresh: bool,
    /// Find only frames among about so many bytes in the middle of a long file that would have to
    /// be scanned, and save nothing.
    pub sample: Option<u64>,
    /// Units of the file's numbers, in place of those that it states: for formats whose files may
    /// state none.
    pub units: Option<&'a str>,
    /// Atoms of a frame, for formats whose files do not state their number; others ignore it.
    pub n_atoms: Option<usize>,
    /// Number of threads that scan a long file.
    pub n_threads: usize,
    /// Called now and then, from the calling thread.
    pub progress: &'a Progress<'a>,
}

impl OpenOptions<'_> {
    /// Recognise the formats of a registry; scan on one thread, and save nothing.
    pub fn new(registry: &'static Registry) -> Self {
        OpenOptions {
            registry,
            index_files: Vec::new(),
            refresh: false,
            sample: None,
            units: None,
            n_atoms: None,
            n_threads: 1,
            progress: &|_, _| ControlFlow::Continue(()),
        }
    }
}

/// How an index came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// By arithmetic.
    Computed,
    /// From a scan of the whole file.
    Scanned,
    /// From a saved index and a scan of what the file has grown by.
    Extended,
    /// From a saved index.
    Loaded,
    /// From some frames in the middle of the file: there are others.
    Sampled,
}

/// A file whose frames have been found.
#[derive(Debug)]
pub struct Opened {
    /// How its frames are coded.
    pub layout: Layout,
    /// Offsets and sizes of its frames.
    pub frames: Frames,
    /// Samples by which workers recognise the file.
    pub samples: Samples,
    /// Warnings about the file, a sentence each.
    pub notes: Vec<String>,
    /// Numbers of the frames that a scan found to be damaged.
    pub damaged: Vec<u64>,
    /// Atoms of each frame, where their number varies; 0 where a damaged frame's is not known.
    pub atom_counts: Option<Vec<u32>>,
    /// How its frames were found.
    pub origin: Origin,
    /// Path where the index is saved.
    pub file: Option<PathBuf>,
    /// Times that a scan met; none where they are left in the file or in the saved index.
    pub times: Option<Times>,
}

impl Opened {
    /// A file whose frames are found by arithmetic.
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

/// When the frames of a file are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    /// ps; NaN where a damaged frame's time is not known.
    pub times: Vec<f64>,
    /// Step of the simulation; 0 where it is not known.
    pub steps: Vec<i64>,
}

/// The places of the frames of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frames {
    /// Start of each frame, then the end of the last.
    Listed(Vec<u64>),
    /// The first frame may have another size than all the others.
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
    /// All frames lie in the same bytes: their parts are in different places there.
    Shared {
        /// Offset of these bytes.
        start: u64,
        /// Number of these bytes.
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

    /// Offset and size of a frame, in bytes.
    ///
    /// # Panics
    /// If there is no such frame.
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

/// The error for a file that a format does not support.
pub fn unsupported(path: &Path, what: String) -> Error {
    Error::Unsupported {
        path: path.to_owned(),
        what,
    }
}
