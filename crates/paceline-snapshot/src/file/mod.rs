//! Files that ranks write together: the first rank writes all parts except the atoms.
//!
//! An existing file grows in place; a new file appears under its name when its first frame is
//! complete. A program that is killed leaves the complete frames.

mod dcd;
mod dlpoly;
#[cfg(all(unix, target_pointer_width = "64"))]
pub(crate) mod h5md;
mod netcdf;
mod output_file_and_container;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use paceline_formats::Fields;
use paceline_formats::dlpoly::encode::Cell;
use paceline_formats::error::{Error, Fault};

use self::output_file_and_container::Output;
use crate::atom_encoding::{Arrays, Float, Text};
use crate::{Failure, Records, Result};

pub use self::output_file_and_container::{Container, Property, check_output, open};

/// Maximum size of a header, bytes.
const LONGEST_HEADER: usize = 1 << 20;

/// Format of a snapshot file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// CONFIG or REVCON of DL_POLY: one configuration, which every frame replaces.
    Config,
    /// HISTORY of DL_POLY, in records of 73 bytes.
    History,
    /// Amber's NetCDF; a new file is in CDF-5 format.
    Netcdf,
    /// DCD, little-endian, with markers of 4 bytes.
    Dcd,
    /// H5MD. The HDF5 library writes its metadata.
    H5md,
}

impl Kind {
    /// All formats with their names.
    pub const ALL: [(&'static str, Kind); 6] = [
        ("CONFIG", Kind::Config),
        ("REVCON", Kind::Config),
        ("HISTORY", Kind::History),
        ("NetCDF", Kind::Netcdf),
        ("DCD", Kind::Dcd),
        ("H5MD", Kind::H5md),
    ];

    /// Return the format of this name, in letters of any case.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Kind::ALL.iter();
        let found = all.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|&(_, kind)| kind)
    }

    /// Return the format that a file name determines: its extension, or CONFIG, REVCON or HISTORY
    /// between dots.
    pub fn from_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_uppercase();
        match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("NC" | "NCDF") => Some(Kind::Netcdf),
            Some("DCD") => Some(Kind::Dcd),
            Some("H5MD" | "H5" | "HDF5") => Some(Kind::H5md),
            _ => name.split('.').find_map(Kind::from_name),
        }
    }

    /// Usual name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Config => "CONFIG",
            Kind::History => "HISTORY",
            Kind::Netcdf => "NetCDF",
            Kind::Dcd => "DCD",
            Kind::H5md => "H5MD",
        }
    }

    /// True if the file stores names, masses and charges of atoms once for all frames.
    pub fn has_static_properties(self) -> bool {
        self == Kind::H5md
    }

    /// Make the encoder of atoms. If the format allows 32 and 64 bits, `is_double` chooses 64 bits.
    ///
    /// # Errors
    /// Sentence about a combination of fields that the format cannot represent.
    pub fn records(
        self,
        fields: Fields,
        is_double: bool,
    ) -> std::result::Result<Box<dyn Records + Send>, String> {
        let big = Float::F4 { big_endian: true };
        let little = Float::F4 { big_endian: false };
        Ok(match self {
            Kind::Config => Box::new(Text::new(false, fields)?),
            Kind::History => Box::new(Text::new(true, fields)?),
            Kind::Netcdf => Box::new(Arrays::new(fields, big, AMBER)),
            Kind::Dcd if fields == Fields::POSITIONS => Box::new(Arrays::coordinates(little)),
            Kind::Dcd => return Err("a DCD file can contain only positions".into()),
            Kind::H5md if is_double => {
                let double = Float::F8 { big_endian: false };
                Box::new(Arrays::new(fields, double, [1.0; 3]))
            }
            Kind::H5md => Box::new(Arrays::new(fields, little, [1.0; 3])),
        })
    }
}

/// Factors from Å, Å/ps and kJ/(mol·Å) to Amber's units. Amber's unit of time is 1/20.455 ps, and 1
/// kcal is 4.184 kJ.
const AMBER: [f64; 3] = [1.0, 1.0 / 20.455, 1.0 / 4.184];

/// Options of a file.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Path of the file.
    pub path: PathBuf,
    /// Number of atoms of all ranks.
    pub n_atoms: u64,
    /// Title, for CONFIG, HISTORY and H5MD.
    pub title: String,
    /// True if frames are appended to an existing file.
    pub append: bool,
    /// True if an existing file may be replaced.
    pub overwrite: bool,
    /// Time step (ps), for CONFIG and HISTORY; by default, the time divided by the step number.
    pub dt: Option<f64>,
    /// True if each frame must be on the disk before the next frame.
    pub sync: bool,
    /// Maximum number of frames in H5MD, for contiguous storage; `None` for datasets with chunks.
    pub n_frames: Option<u64>,
    /// True for numbers of 64 bits in H5MD.
    pub double: bool,
}

/// Content of all frames of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// Fields that every frame contains: positions, velocities and forces.
    pub fields: Fields,
    /// True if frames have a cell.
    pub has_cell: bool,
}

/// Data that all atoms of a frame share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heading {
    /// Step of the simulation.
    pub step: i64,
    /// Time, ps.
    pub time: f64,
    /// Cell vectors, Å; `None` if the system is not periodic.
    pub cell: Option<Cell>,
}

/// Destination of the atoms of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Current name of the file.
    pub path: PathBuf,
    /// Offset of atom 1 in each section.
    pub starts: Vec<u64>,
    /// Warning that programs will read other values than were written, such as another time.
    pub warning: Option<String>,
}

/// Offset, and bytes at this offset.
type Piece = (u64, Vec<u8>);

/// Layout of one frame. The framing bytes (such as record markers) are written after the atoms, so
/// that an incomplete frame lacks them.
#[derive(Debug, Default)]
struct FrameOffsets {
    /// Offset of atom 1 in each section.
    starts: Vec<u64>,
    framing: Vec<Piece>,
    end: u64,
    warning: Option<String>,
}

/// Frames of a file that is to be extended.
struct Existing {
    contents: Contents,
    /// Offset of the first frame.
    first: u64,
    frame_size: u64,
    /// Number of frames according to the header.
    counted: u64,
}

/// Layout of the files of one format.
trait Layout: Send {
    /// True if every frame replaces the file.
    fn holds_one_frame(&self) -> bool {
        false
    }

    /// Make the header of a new file.
    fn head(
        &mut self,
        settings: &Settings,
        contents: &Contents,
        heading: &Heading,
    ) -> Result<Vec<u8>>;

    /// Check a file that is to be extended, and return the location of its frames.
    fn open(&mut self, settings: &Settings, output: &Output) -> Result<Existing>;

    /// True if a frame certainly has its framing bytes.
    fn is_whole(&self, settings: &Settings, output: &Output, start: u64) -> Result<bool>;

    /// Refuse an existing file in which a frame does not begin at the expected offset.
    fn check_frame(
        &self,
        _settings: &Settings,
        _frame: u64,
        _start: u64,
        _whole: bool,
    ) -> Result<()> {
        Ok(())
    }

    /// Determine the layout of frame number `n_frames`, which begins at `start`.
    fn next(
        &mut self,
        settings: &Settings,
        contents: &Contents,
        heading: &Heading,
        n_frames: u64,
        start: u64,
    ) -> Result<FrameOffsets>;

    /// Make the bytes of the header that contain the number of frames.
    fn counts(
        &mut self,
        settings: &Settings,
        contents: &Contents,
        n_frames: u64,
    ) -> Result<Vec<Piece>>;

    /// Return the names, 8 bytes each, of atoms in the first frame, counted from 0; `None` if the
    /// format stores no names.
    fn names(
        &self,
        _settings: &Settings,
        _output: &Output,
        _atoms: std::ops::Range<u64>,
    ) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

/// File of a single frame, or of consecutive frames after a header.
pub struct SnapshotFile {
    settings: Settings,
    layout: Box<dyn Layout>,
    output: Option<Output>,
    contents: Option<Contents>,
    frame: FrameOffsets,
    /// End of the committed frames.
    end: u64,
    n_frames: u64,
}

impl SnapshotFile {
    /// Open a file for writing.
    ///
    /// # Errors
    /// [`Error::Io`] if the file exists and may not be changed; [`Failure::AtomCount`],
    /// [`Error::Unsupported`] or [`Error::Damaged`] if it cannot be extended.
    pub fn open(kind: Kind, settings: Settings) -> Result<Self> {
        let layout: Box<dyn Layout> = match kind {
            Kind::Config => Box::new(dlpoly::Config),
            Kind::History => Box::<dlpoly::History>::default(),
            Kind::Netcdf => Box::<netcdf::Netcdf>::default(),
            Kind::Dcd => Box::<dcd::Dcd>::default(),
            Kind::H5md => return Err(unsupported(&settings.path, "H5MD has no layout of its own")),
        };
        let mut file = SnapshotFile {
            settings,
            layout,
            output: None,
            contents: None,
            frame: FrameOffsets::default(),
            end: 0,
            n_frames: 0,
        };
        if file.layout.holds_one_frame() && file.settings.append {
            let what = "it contains one configuration, and no frame can be added; overwrite it";
            return Err(unsupported(&file.settings.path, what));
        }
        match file.settings.append && file.settings.path.exists() {
            true => file.extend()?,
            false => check_output(&file.settings.path, file.settings.overwrite)?,
        }
        Ok(file)
    }

    /// Number of complete frames; for a CONFIG, number of frames written.
    pub fn n_frames(&self) -> u64 {
        self.n_frames
    }

    /// Open an existing file. If a program died, the header may count too few frames, and the last
    /// frame may be incomplete.
    fn extend(&mut self) -> Result<()> {
        let settings = &self.settings;
        if settings.path.is_dir() {
            check_output(&settings.path, true)?;
        }
        let output = Output::existing(&settings.path)?;
        let found = self.layout.open(settings, &output)?;
        let size = found.frame_size.max(1);
        let present = output.size()?.saturating_sub(found.first) / size;
        let is_whole = |layout: &dyn Layout, frame: u64| {
            layout.is_whole(settings, &output, found.first + frame * size)
        };
        let mut n_frames = found.counted.min(present);
        while n_frames < present && is_whole(&*self.layout, n_frames)? {
            n_frames += 1;
        }
        for frame in [Some(0), n_frames.checked_sub(1)].into_iter().flatten() {
            if n_frames > 0 {
                let whole = is_whole(&*self.layout, frame)?;
                let start = found.first + frame * size;
                self.layout.check_frame(settings, frame, start, whole)?;
            }
        }
        self.n_frames = n_frames;
        self.end = found.first + n_frames * size;
        self.contents = Some(found.contents);
        self.output = Some(output);
        Ok(())
    }

    /// Determine where the next frame is written. If no file is open, first create it with its
    /// header.
    ///
    /// # Errors
    /// [`Failure::Unwritable`] if the file cannot hold the frame, [`Error::Changed`] if the file
    /// was replaced, and [`Error::Io`].
    pub fn place(&mut self, contents: Contents, heading: &Heading) -> Result<Place> {
        if let Some(expected) = self.contents {
            check_contents(&self.settings.path, &contents, &expected)?;
        }
        match &self.output {
            Some(output) => output.check_not_replaced()?,
            None => {
                let head = self.layout.head(&self.settings, &contents, heading)?;
                let output = Output::new(&self.settings.path)?;
                output.write(0, &head)?;
                self.end = head.len() as u64;
                self.output = Some(output);
            }
        }
        self.contents = Some(contents);
        let (n_frames, end) = (self.n_frames, self.end);
        self.frame = self
            .layout
            .next(&self.settings, &contents, heading, n_frames, end)?;
        let output = self.opened()?;
        // Beyond the committed frames, the file may contain bytes of a killed job, which would be
        // read as frames if they stayed.
        if output.size()? > end {
            output.cut(end)?;
        }
        Ok(Place {
            path: output.name().to_owned(),
            starts: self.frame.starts.clone(),
            warning: self.frame.warning.take(),
        })
    }

    /// Write the framing bytes, and count the frame as complete, after its atoms were written.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn commit(&mut self) -> Result<()> {
        let counts = self.counts(self.n_frames + 1)?;
        let framing = std::mem::take(&mut self.frame.framing);
        for (offset, bytes) in framing.iter().chain(&counts) {
            self.opened()?.write(*offset, bytes)?;
        }
        let overwrite = self.settings.overwrite || self.n_frames > 0;
        let sync = self.settings.sync;
        let output = self.output.as_mut().ok_or_else(not_placed)?;
        if sync {
            output.sync()?;
        }
        output.publish(overwrite)?;
        self.n_frames += 1;
        self.end = self.frame.end;
        if self.layout.holds_one_frame() {
            self.close()?;
        }
        Ok(())
    }

    /// Truncate the file to the committed frames.
    ///
    /// # Errors
    /// [`Error::Io`]; the header then holds the number of complete frames.
    pub fn cut_back(&mut self) -> Result<()> {
        let Some(output) = &self.output else {
            return Ok(());
        };
        if !output.is_published() {
            return self.close();
        }
        for (offset, bytes) in self.counts(self.n_frames)? {
            self.opened()?.write(offset, &bytes)?;
        }
        self.opened()?.cut(self.end)
    }

    /// Return the names of some atoms in an existing file, 8 bytes each; `None` if it contains
    /// none. Atoms are counted from 0.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn stored_names(&self, atoms: std::ops::Range<u64>) -> Result<Option<Vec<u8>>> {
        match &self.output {
            Some(output) if self.n_frames > 0 => self.layout.names(&self.settings, output, atoms),
            _ => Ok(None),
        }
    }

    /// Close the file. A file without a complete frame is removed.
    ///
    /// # Errors
    /// [`Error::Io`] if the system could not write.
    pub fn close(&mut self) -> Result<()> {
        self.contents = None;
        self.output.take().map_or(Ok(()), Output::close)
    }

    fn counts(&mut self, n_frames: u64) -> Result<Vec<Piece>> {
        let contents = self.contents.ok_or_else(not_placed)?;
        self.layout.counts(&self.settings, &contents, n_frames)
    }

    fn opened(&self) -> Result<&Output> {
        self.output.as_ref().ok_or_else(not_placed)
    }
}

fn not_placed() -> Failure {
    Error::Argument("no frame has a place in the file".into()).into()
}

fn unsupported(path: &Path, what: impl Into<String>) -> Failure {
    Error::Unsupported {
        path: path.to_owned(),
        what: what.into(),
    }
    .into()
}

/// Add the file name to the refusal of an encoder.
fn unwritable(path: &Path) -> impl Fn(String) -> Failure {
    move |reason| Failure::Unwritable(format!("{}: {reason}", path.display()))
}

fn damaged(path: &Path, len: usize, fault: Fault) -> Failure {
    Error::damaged_head(path, len, fault).into()
}

fn check_atom_count(settings: &Settings, found: u64) -> Result<()> {
    match found == settings.n_atoms {
        true => Ok(()),
        false => Err(Failure::AtomCount {
            path: settings.path.clone(),
            found,
            expected: settings.n_atoms,
        }),
    }
}

/// Refuse a frame whose content differs from that of the file's frames.
fn check_contents(path: &Path, found: &Contents, expected: &Contents) -> Result<()> {
    let cell = |there| if there { "one" } else { "none" }.to_owned();
    let pairs = [
        ("", field_names(found.fields), field_names(expected.fields)),
        ("a cell: ", cell(found.has_cell), cell(expected.has_cell)),
    ];
    for (what, found, expected) in pairs {
        if found != expected {
            return Err(unwritable(path)(format!(
                "expected {what}{expected}, as its frames have, found {found}; all frames of a \
                 file contain the same"
            )));
        }
    }
    Ok(())
}

fn field_names(fields: Fields) -> String {
    let names = [
        (fields.positions, "positions"),
        (fields.velocities, "velocities"),
        (fields.forces, "forces"),
    ];
    let there: Vec<_> = names
        .iter()
        .filter(|(there, _)| *there)
        .map(|&(_, name)| name)
        .collect();
    there.join(", ")
}

// Lengths and angles of cells, for files that do not contain vectors.

/// Return lengths A, B, C (Å) of a cell's vectors, and the cosines of α, β, γ between them.
pub fn lengths_and_cosines(cell: &Cell) -> ([f64; 3], [f64; 3]) {
    let dot = |i: usize, j: usize| {
        cell[i][0] * cell[j][0] + cell[i][1] * cell[j][1] + cell[i][2] * cell[j][2]
    };
    let lengths = [0, 1, 2].map(|i| dot(i, i).sqrt());
    let cosines = [(1, 2), (0, 2), (0, 1)].map(|(i, j)| dot(i, j) / (lengths[i] * lengths[j]));
    (lengths, cosines)
}

/// Convert cosines to angles in degrees; a cosine of 0 becomes exactly 90°.
pub fn angles(cosines: [f64; 3]) -> [f64; 3] {
    cosines.map(|cosine| 90.0 - cosine.clamp(-1.0, 1.0).asin().to_degrees())
}

/// Return the cell of a frame; refuse a frame without a cell, or with vectors that lengths and
/// angles do not determine.
fn oriented<'a>(path: &Path, cell: &'a Option<Cell>) -> Result<&'a Cell> {
    let Some(cell) = cell else {
        return Err(unwritable(path)("expected a cell, found none".into()));
    };
    let &[[ax, ay, az], [_, by, bz], [_, _, cz]] = cell;
    match [ay, az, bz] == [0.0; 3] && [ax, by, cz].iter().all(|&x| x > 0.0) {
        true => Ok(cell),
        false => Err(unwritable(path)(format!(
            "expected a cell with its first vector along x and its second in the xy \
             plane, because the file stores lengths and angles only, found {cell:?}"
        ))),
    }
}
