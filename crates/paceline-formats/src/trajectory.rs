//! Simple interface for Rust programs: open a trajectory, and read blocks of its frames.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::atom_set::Atoms;
use crate::block_reader::{BlockOut, BlockReader, Extents, Numbers};
use crate::error::{Error, Result};
use crate::format_interface::unsupported;
use crate::format_list::STANDARD;
use crate::index::{self, Index, OpenOptions};
use crate::source::{FileSource, Source};
use crate::{CellRow, Fields, Format, Layout, UnitCell};

/// Trajectory file and its frame index.
///
/// ```no_run
/// use paceline_formats::Fields;
/// use paceline_formats::atom_set::Atoms;
/// use paceline_formats::trajectory::Trajectory;
///
/// # fn main() -> paceline_formats::error::Result<()> {
/// let trajectory = Trajectory::open("md.xtc")?;
/// let atoms = Atoms::all(trajectory.n_atoms());
/// let block = trajectory.reader(atoms, Fields::POSITIONS)?.read(0..10)?;
/// println!("x of the first atom: {} Å", block.positions[0]);
/// # Ok(())
/// # }
/// ```
pub struct Trajectory {
    source: Arc<FileSource>,
    index: Index,
}

impl Trajectory {
    /// Recognise the format of a file and find its frames. No index is saved.
    ///
    /// # Errors
    /// Errors of [`index::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Trajectory> {
        Trajectory::open_with(path, &OpenOptions::new(&STANDARD))
    }

    /// Open a file with options, such as the formats that are recognised.
    ///
    /// # Errors
    /// Errors of [`index::open`].
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions<'_>) -> Result<Trajectory> {
        let source = FileSource::open(path.as_ref())?;
        let index = index::open(&source, options)?;
        Ok(Trajectory {
            source: Arc::new(source),
            index,
        })
    }

    /// Return the frame index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Return the format of the file.
    pub fn format(&self) -> &'static dyn Format {
        self.index.layout().format()
    }

    /// Return the number of atoms of a frame; if it varies, that of the first frame.
    pub fn n_atoms(&self) -> usize {
        self.index.n_atoms()
    }

    /// Number of frames.
    pub fn n_frames(&self) -> u64 {
        self.index.n_frames()
    }

    /// Create a reader of some fields of some atoms. Each thread needs its own reader.
    ///
    /// # Errors
    /// [`Error::Argument`] if the atoms belong to a system of another size. [`Error::Unsupported`]
    /// if the number of atoms varies (see [`Trajectory::frame`]). Errors of the file.
    pub fn reader(&self, atoms: Atoms, fields: Fields) -> Result<FrameReader<'_>> {
        if let Some(what) = self.index.varying() {
            return Err(unsupported(self.source.path(), what));
        }
        self.reader_of(self.index.layout(), atoms, fields)
    }

    /// Read one frame with its own number of atoms.
    ///
    /// # Errors
    /// Errors of [`FrameReader::read`].
    pub fn frame(&self, frame: u64, fields: Fields) -> Result<FrameBlock> {
        check_frames(frame + 1, self.n_frames())?;
        let layout = self.index.layout_of(&*self.source, frame)?;
        let mut reader = self.reader_of(&layout, Atoms::all(layout.n_atoms()), fields)?;
        reader.read(frame..frame + 1)
    }

    fn reader_of(&self, layout: &Layout, atoms: Atoms, fields: Fields) -> Result<FrameReader<'_>> {
        let n_atoms = atoms.len();
        let source = Arc::clone(&self.source);
        let blocks = BlockReader::new(source, layout, atoms, fields)?;
        Ok(FrameReader {
            index: &self.index,
            blocks,
            n_atoms,
            fields,
        })
    }
}

fn check_frames(end: u64, n_frames: u64) -> Result<()> {
    match end > n_frames {
        true => Err(Error::Argument(format!(
            "frames up to {end} are out of range for {n_frames} frames"
        ))),
        false => Ok(()),
    }
}

/// Reads blocks of frames of one trajectory.
pub struct FrameReader<'a> {
    index: &'a Index,
    blocks: BlockReader,
    n_atoms: usize,
    fields: Fields,
}

/// Data of some frames, in Å, Å/ps, kJ/(mol·Å), degrees and ps.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameBlock {
    /// Positions, Å: frames × atoms × 3. Empty if positions were not requested.
    pub positions: Vec<f32>,
    /// Velocities, Å/ps: frames × atoms × 3. Empty if velocities were not requested.
    pub velocities: Vec<f32>,
    /// Forces, kJ/(mol·Å): frames × atoms × 3. Empty if forces were not requested.
    pub forces: Vec<f32>,
    /// Cell of each frame; [`UnitCell::of_row`] converts it.
    pub cells: Vec<CellRow>,
    /// Times, ps.
    pub times: Vec<f64>,
    /// Step numbers of the simulation.
    pub steps: Vec<i64>,
    /// λ of free-energy calculations; 0 if the format has none.
    pub lambdas: Vec<f32>,
}

impl FrameReader<'_> {
    /// Read some frames. If a frame lacks a field, the numbers of this field are NaN.
    ///
    /// # Errors
    /// [`Error::Argument`] if the frames do not exist, [`Error::Damaged`] for the first damaged
    /// frame, and errors of the file.
    pub fn read(&mut self, frames: Range<u64>) -> Result<FrameBlock> {
        check_frames(frames.end, self.index.n_frames())?;
        let frames: Vec<u64> = frames.collect();
        let extent = |&frame: &u64| self.index.extent(frame);
        let (offsets, sizes): (Vec<u64>, Vec<u64>) = frames.iter().map(extent).unzip();
        let n = frames.len();
        let room = |wanted| vec![0.0; if wanted { 3 * n * self.n_atoms } else { 0 }];
        let mut block = FrameBlock {
            positions: room(self.fields.positions),
            velocities: room(self.fields.velocities),
            forces: room(self.fields.forces),
            cells: vec![UnitCell::NONE.row(); n],
            times: vec![0.0; n],
            steps: vec![0; n],
            lambdas: vec![0.0; n],
        };
        let extents = Extents {
            frames: &frames,
            offsets: &offsets,
            sizes: &sizes,
        };
        let out = BlockOut {
            numbers: Numbers::Kept {
                positions: &mut block.positions,
                velocities: &mut block.velocities,
                forces: &mut block.forces,
            },
            cells: &mut block.cells,
            times: &mut block.times,
            steps: &mut block.steps,
            lambdas: &mut block.lambdas,
            fields: &mut vec![0; n],
        };
        self.blocks.read(extents, out, Fields::default(), false)?;
        Ok(block)
    }
}
