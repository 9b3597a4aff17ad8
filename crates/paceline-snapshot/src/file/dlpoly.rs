//! Text of DL_POLY: CONFIG or REVCON with one configuration, and HISTORY with a series.

use std::ops::Range;

use paceline_formats::Fields;
use paceline_formats::dlpoly::encode::{self, Moment, RECORD, level};
use paceline_formats::dlpoly::{Head, TIMESTEP};

use super::{
    Contents, Existing, FrameOffsets, Heading, Layout, Output, Piece, Settings, check_atom_count,
    damaged, unsupported, unwritable,
};
use crate::Result;

/// Maximum number of bytes up to the end of the first atom's lines.
const LONGEST_HEADER: usize = 1 << 16;
/// Offset of the first frame of a HISTORY, and size of a frame's header, bytes.
const FIRST: u64 = 2 * RECORD as u64;
const FRAME_HEAD: u64 = 4 * RECORD as u64;
/// Size of an atom's name, bytes.
const NAME: usize = 8;

/// Return the header of a frame. If the settings contain no time step, the time step is the time
/// divided by the step number.
fn moment<'a>(settings: &Settings, heading: &'a Heading) -> Moment<'a> {
    let of_step = || match heading.step {
        0 => 0.0,
        step => heading.time / step as f64,
    };
    Moment {
        step: heading.step,
        dt: settings.dt.unwrap_or_else(of_step),
        time: heading.time,
        cell: heading.cell.as_ref(),
    }
}

/// CONFIG or REVCON: one configuration, which every frame replaces.
pub struct Config;

impl Layout for Config {
    fn holds_one_frame(&self) -> bool {
        true
    }

    fn head(
        &mut self,
        settings: &Settings,
        contents: &Contents,
        heading: &Heading,
    ) -> Result<Vec<u8>> {
        level(contents.fields)
            .and_then(|level| {
                let moment = moment(settings, heading);
                encode::config_head(&settings.title, level, settings.n_atoms, &moment)
            })
            .map_err(unwritable(&settings.path))
    }

    fn open(&mut self, settings: &Settings, _: &Output) -> Result<Existing> {
        Err(unsupported(
            &settings.path,
            "a configuration cannot be continued",
        ))
    }

    fn is_whole(&self, _: &Settings, _: &Output, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn next(
        &mut self,
        _: &Settings,
        _: &Contents,
        _: &Heading,
        _: u64,
        start: u64,
    ) -> Result<FrameOffsets> {
        Ok(FrameOffsets {
            starts: vec![start],
            ..FrameOffsets::default()
        })
    }

    fn counts(&mut self, _: &Settings, _: &Contents, _: u64) -> Result<Vec<Piece>> {
        Ok(Vec::new())
    }
}

/// HISTORY: a series of frames, in records of 73 bytes.
#[derive(Default)]
pub struct History {
    imcon: i64,
    atom_size: u64,
}

impl History {
    fn head_of(&self, settings: &Settings, contents: &Contents, n_frames: u64) -> Result<Vec<u8>> {
        level(contents.fields)
            .and_then(|level| {
                let (title, n_atoms) = (&settings.title, settings.n_atoms);
                encode::history_head(title, level, self.imcon, n_atoms, n_frames)
            })
            .map_err(unwritable(&settings.path))
    }

    /// Parse the header; refuse a header that does not consist of two records of 73 bytes.
    fn parse(settings: &Settings, output: &Output) -> Result<Head> {
        let path = &settings.path;
        let bytes = output.read(0, LONGEST_HEADER)?;
        let line = bytes.get(RECORD..2 * RECORD).unwrap_or_default();
        let ends = |at: usize| bytes.get(at) == Some(&b'\n');
        let n_words = line
            .split(u8::is_ascii_whitespace)
            .filter(|word| !word.is_empty())
            .count();
        if ends(RECORD - 1) && ends(2 * RECORD - 1) && n_words == 5 {
            let head = Head::parse_history(&bytes, output.size()?)
                .map_err(|fault| damaged(path, bytes.len(), fault))?;
            if usize::from(head.layout.level()) < LEVELS.len() {
                return Ok(head);
            }
        }
        Err(unsupported(
            path,
            format!(
                "only a HISTORY of DL_POLY_4 or 5, in records of 73 bytes, can be continued: \
                 expected keytrj, imcon, atoms, frames and records at byte {RECORD}, found '{}'",
                line.trim_ascii().escape_ascii()
            ),
        ))
    }
}

/// Fields of a frame for each value of keytrj: 0, 1 and 2.
const LEVELS: [Fields; 3] = {
    let all = Fields {
        positions: true,
        velocities: true,
        forces: true,
    };
    let moving = Fields {
        forces: false,
        ..all
    };
    [Fields::POSITIONS, moving, all]
};

impl Layout for History {
    fn head(
        &mut self,
        settings: &Settings,
        contents: &Contents,
        heading: &Heading,
    ) -> Result<Vec<u8>> {
        let refused = unwritable(&settings.path);
        self.imcon = encode::imcon(heading.cell.as_ref()).map_err(&refused)?;
        self.atom_size = encode::atom_size(level(contents.fields).map_err(refused)?) as u64;
        self.head_of(settings, contents, 0)
    }

    fn open(&mut self, settings: &Settings, output: &Output) -> Result<Existing> {
        let head = History::parse(settings, output)?;
        let level = usize::from(head.layout.level());
        check_atom_count(settings, head.layout.n_atoms() as u64)?;
        self.imcon = head.layout.imcon().into();
        self.atom_size = encode::atom_size(level) as u64;
        Ok(Existing {
            contents: Contents {
                fields: LEVELS[level],
                has_cell: self.imcon > 0,
            },
            first: FIRST,
            frame_size: FRAME_HEAD + settings.n_atoms * self.atom_size,
            counted: head.claimed.unwrap_or(0),
        })
    }

    fn is_whole(&self, _: &Settings, output: &Output, start: u64) -> Result<bool> {
        Ok(output.read(start, TIMESTEP.len())? == TIMESTEP)
    }

    fn check_frame(&self, settings: &Settings, frame: u64, start: u64, whole: bool) -> Result<()> {
        match whole {
            true => Ok(()),
            false => Err(unsupported(
                &settings.path,
                format!(
                    "frame {frame}: expected \"timestep\" at byte {start}: only a HISTORY whose \
                     frames are of one size, in records of 73 bytes, can be continued"
                ),
            )),
        }
    }

    fn next(
        &mut self,
        settings: &Settings,
        contents: &Contents,
        heading: &Heading,
        _: u64,
        start: u64,
    ) -> Result<FrameOffsets> {
        let head = level(contents.fields)
            .and_then(|level| {
                encode::frame_head(level, settings.n_atoms, &moment(settings, heading))
            })
            .map_err(unwritable(&settings.path))?;
        let atoms = start + head.len() as u64;
        Ok(FrameOffsets {
            starts: vec![atoms],
            framing: vec![(start, head)],
            end: atoms + settings.n_atoms * self.atom_size,
            warning: None,
        })
    }

    fn counts(
        &mut self,
        settings: &Settings,
        contents: &Contents,
        n_frames: u64,
    ) -> Result<Vec<Piece>> {
        let head = self.head_of(settings, contents, n_frames)?;
        Ok(vec![(RECORD as u64, head[RECORD..].to_vec())])
    }

    fn names(&self, _: &Settings, output: &Output, atoms: Range<u64>) -> Result<Option<Vec<u8>>> {
        let start = FIRST + FRAME_HEAD + atoms.start * self.atom_size;
        let bytes = output.read(start, ((atoms.end - atoms.start) * self.atom_size) as usize)?;
        let records = bytes.chunks_exact(self.atom_size as usize);
        Ok(Some(
            records
                .flat_map(|atom| atom[..NAME].iter().copied())
                .collect(),
        ))
    }
}
