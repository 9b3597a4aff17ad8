//! Amber's trajectories in NetCDF's classic formats.

use paceline_formats::Fields;
use paceline_formats::error::Error;
use paceline_formats::netcdf3::header::{Attribute, Header, width};
use paceline_formats::netcdf3::{NetcdfEncoder, units};
use paceline_formats::{Encoder, Series};

use super::{
    Contents, Existing, FrameOffsets, Heading, LONGEST_HEADER, Layout, Output, Piece, Settings,
    angles, check_atom_count, damaged, lengths_and_cosines, oriented, unsupported, unwritable,
};
use crate::{Failure, Result};

/// Variables of Amber's convention that hold fields, and cells.
const VECTORS: [&str; 3] = ["coordinates", "velocities", "forces"];
const CELL_LENGTHS: &str = "cell_lengths";
const CELL_ANGLES: &str = "cell_angles";
/// Codes of the types of values in a file.
const CHAR: u32 = 2;
const FLOAT: u32 = 5;
const DOUBLE: u32 = 6;

/// Variable that has an entry in each record.
#[derive(Debug)]
struct Variable {
    name: String,
    /// Dimensions of the variable, without that of the records.
    dimensions: Vec<String>,
    kind: u32,
    /// Size of the variable's entry in a record, bytes; and offset in the file of its first entry.
    size: u64,
    begin: u64,
    /// Unit stated in the file, without the padding of some programs; "" if none is stated.
    unit: String,
    /// Values of the attribute `scale_factor`, by which programs multiply the numbers; `None`
    /// without this attribute. NaN stands for a factor of an integer type.
    scale: Option<Vec<f64>>,
}

/// Layout of a NetCDF file: version, sizes, and variables that have an entry in each record.
#[derive(Default)]
pub struct Netcdf {
    version: u8,
    n_atoms: u64,
    header_size: u64,
    record_size: u64,
    n_records: Option<u64>,
    records: Vec<Variable>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn unit_of(attributes: &[Attribute<'_>]) -> String {
    let unit = attributes
        .iter()
        .find(|one| one.name == b"units" && one.kind == CHAR);
    let unit = unit.map(|one| text(one.values)).unwrap_or_default();
    unit.trim_end_matches(['\0', ' ']).to_owned()
}

fn scale_of(attributes: &[Attribute<'_>]) -> Option<Vec<f64>> {
    let scale = attributes.iter().find(|one| one.name == b"scale_factor")?;
    let width = width(scale.kind).unwrap_or(1) as usize;
    let value = |bytes: &[u8]| match (scale.kind, bytes) {
        (FLOAT, &[a, b, c, d]) => f32::from_be_bytes([a, b, c, d]).into(),
        (DOUBLE, &[a, b, c, d, e, f, g, h]) => f64::from_be_bytes([a, b, c, d, e, f, g, h]),
        // Factors of integer types do not occur in files, and are refused.
        _ => f64::NAN,
    };
    Some(scale.values.chunks_exact(width).map(value).collect())
}

impl Variable {
    fn n_values(&self) -> u64 {
        self.size / width(self.kind).unwrap_or(1)
    }

    /// Factors that convert the numbers to paceline's unit of the same quantity as `like`; NaN for
    /// units of other quantities.
    fn factors(&self, like: &str) -> Vec<f64> {
        let unit = if self.unit.is_empty() {
            like
        } else {
            &self.unit
        };
        let factor = units::factor(unit, like).unwrap_or(f64::NAN);
        let scale = self.scale.clone().unwrap_or_else(|| vec![1.0]);
        scale.iter().map(|scale| scale * factor).collect()
    }

    fn scaled_unit(&self) -> String {
        let unit = if self.unit.is_empty() {
            "no stated unit"
        } else {
            &self.unit
        };
        match &self.scale {
            None => unit.to_owned(),
            Some(scale) => {
                let scale: Vec<_> = scale.iter().map(|one| format!("{one:?}")).collect();
                format!("{unit} scaled by {}", scale.join(", "))
            }
        }
    }

    fn shape(&self) -> String {
        let dimensions: Vec<_> = std::iter::once("frame")
            .chain(self.dimensions.iter().map(String::as_str))
            .collect();
        let n_values = self.n_values();
        format!("({}), values per frame: {n_values}", dimensions.join(", "))
    }
}

/// NumPy's name of a type.
fn type_name(kind: u32) -> &'static str {
    match kind {
        1 => ">i1",
        CHAR => "S1",
        3 => ">i2",
        4 => ">i4",
        FLOAT => ">f4",
        DOUBLE => ">f8",
        7 => ">u1",
        8 => ">u2",
        9 => ">u4",
        10 => ">i8",
        _ => ">u8",
    }
}

impl Netcdf {
    fn parse(settings: &Settings, bytes: &[u8], file_size: u64) -> Result<Self> {
        let header = Header::parse(bytes, file_size)
            .map_err(|fault| damaged(&settings.path, bytes.len(), fault))?;
        let name = |&number: &usize| text(header.dimensions[number].name);
        let in_frames = header.variables.iter().filter(|variable| {
            variable.in_records && variable.dimensions.first().map(name).as_deref() == Some("frame")
        });
        let records = in_frames.map(|variable| Variable {
            name: text(variable.name),
            dimensions: variable.dimensions[1..].iter().map(name).collect(),
            kind: variable.kind,
            size: variable.size,
            begin: variable.begin,
            unit: unit_of(&variable.attributes),
            scale: scale_of(&variable.attributes),
        });
        Ok(Netcdf {
            version: header.version,
            n_atoms: header.dimension("atom").unwrap_or(0),
            header_size: header.size,
            record_size: header.record_size,
            n_records: header.n_records,
            records: records.collect(),
        })
    }

    fn new_head(settings: &Settings, contents: &Contents) -> Result<Vec<u8>> {
        let n_atoms = usize::try_from(settings.n_atoms).map_err(|error| error.to_string());
        let encoder = n_atoms
            .and_then(|n| NetcdfEncoder::new(n, contents.has_cell, contents.fields))
            .map_err(unwritable(&settings.path))?;
        Ok(encoder.as_cdf5().head(&Series {
            n_frames: 0,
            time: 0.0,
            dt: 0.0,
            step: 0,
            steps: 0,
        }))
    }

    fn variable(&self, name: &str) -> Option<&Variable> {
        self.records.iter().find(|variable| variable.name == name)
    }

    /// Find a variable of the records, and the offset of its entry in record `n_frames`.
    fn place(&self, name: &str, n_frames: u64) -> Result<(&Variable, u64)> {
        let variable = self.variable(name).ok_or_else(|| {
            Failure::from(Error::Argument(format!("the file has no variable {name}")))
        })?;
        Ok((variable, variable.begin + n_frames * self.record_size))
    }

    fn piece(
        &self,
        settings: &Settings,
        name: &str,
        n_frames: u64,
        numbers: &[f64],
    ) -> Result<Piece> {
        let (variable, offset) = self.place(name, n_frames)?;
        let single = variable.kind == FLOAT;
        let stored = |x: f64| if single { f64::from(x as f32) } else { x };
        if numbers.iter().any(|&x| !stored(x).is_finite()) {
            let kind = if single { "float32" } else { "float64" };
            return Err(unwritable(&settings.path)(format!(
                "expected a {name} that fits into {kind}, found {numbers:?}"
            )));
        }
        let bytes = match single {
            true => numbers
                .iter()
                .flat_map(|&x| (x as f32).to_be_bytes())
                .collect(),
            false => numbers.iter().flat_map(|&x| x.to_be_bytes()).collect(),
        };
        Ok((offset, bytes))
    }

    /// Find the offset of the first record; its variables must be contiguous.
    fn first_record(&self, settings: &Settings) -> Result<u64> {
        let mut in_order: Vec<_> = self.records.iter().collect();
        in_order.sort_by_key(|variable| variable.begin);
        let first = in_order.first().map_or(0, |variable| variable.begin);
        let mut expected = first.max(self.header_size);
        for variable in in_order {
            if variable.begin != expected {
                return Err(Failure::Error(Error::Damaged {
                    path: settings.path.clone(),
                    frame: None,
                    offset: 0,
                    expected: format!("{} of the first record at byte {expected}", variable.name),
                    found: format!("byte {}", variable.begin),
                }));
            }
            // Entries are padded, unless there is only one variable.
            let padded = variable.size.next_multiple_of(4);
            expected += if self.records.len() == 1 {
                variable.size
            } else {
                padded
            };
        }
        Ok(first)
    }

    /// Return the content of the records; refuse what paceline would not write.
    fn contents(&self, settings: &Settings) -> Result<Contents> {
        let there = |name: &str| self.variable(name).is_some();
        let contents = Contents {
            fields: Fields {
                positions: there(VECTORS[0]),
                velocities: there(VECTORS[1]),
                forces: there(VECTORS[2]),
            },
            has_cell: there(CELL_LENGTHS),
        };
        let whole = Contents {
            fields: Fields {
                positions: true,
                ..contents.fields
            },
            ..contents
        };
        let head = Netcdf::new_head(settings, &whole)?;
        let ours = Netcdf::parse(settings, &head, u64::MAX)?;
        let mut names: Vec<_> = self.records.iter().chain(&ours.records).collect();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        for variable in names {
            let name = &variable.name;
            match (self.variable(name), ours.variable(name)) {
                (Some(_), Some(_)) => {}
                (Some(_), None) => {
                    return Err(unlike(settings, &format!("no variable '{name}'"), "one"));
                }
                _ => return Err(unlike(settings, &format!("a variable '{name}'"), "none")),
            }
        }
        for expected in &ours.records {
            if let Some(found) = self.variable(&expected.name) {
                check_variable(settings, found, expected)?;
            }
        }
        Ok(contents)
    }
}

/// Refuse a variable whose type, shape or unit does not fit the numbers that paceline writes.
fn check_variable(settings: &Settings, found: &Variable, expected: &Variable) -> Result<()> {
    let name = &expected.name;
    let kinds = match VECTORS.contains(&name.as_str()) {
        true => &[expected.kind][..],
        false => &[FLOAT, DOUBLE],
    };
    let size = expected
        .n_values()
        .checked_mul(width(found.kind).unwrap_or(1));
    if !kinds.contains(&found.kind)
        || found.dimensions != expected.dimensions
        || Some(found.size) != size
    {
        let names: Vec<_> = kinds.iter().map(|&kind| type_name(kind)).collect();
        return Err(unlike(
            settings,
            &format!(
                "{name} of type {} and shape {}",
                names.join(" or "),
                expected.shape()
            ),
            &format!("type {} and shape {}", type_name(found.kind), found.shape()),
        ));
    }
    let (one, other) = (
        found.factors(&expected.unit),
        expected.factors(&expected.unit),
    );
    let close = |(x, y): (&f64, &f64)| (x - y).abs() <= 1e-8 + 1e-6 * y.abs();
    match one.len() == 1 && other.len() == 1 && one.iter().zip(&other).all(close) {
        true => Ok(()),
        false => Err(unlike(
            settings,
            &format!("{name} in {}", expected.scaled_unit()),
            &found.scaled_unit(),
        )),
    }
}

fn unlike(settings: &Settings, expected: &str, found: &str) -> Failure {
    unsupported(
        &settings.path,
        format!(
            "frames cannot be appended: expected {expected}, found {found}; write to a new file"
        ),
    )
}

impl Layout for Netcdf {
    fn head(&mut self, settings: &Settings, contents: &Contents, _: &Heading) -> Result<Vec<u8>> {
        let head = Netcdf::new_head(settings, contents)?;
        *self = Netcdf::parse(settings, &head, u64::MAX)?;
        Ok(head)
    }

    fn open(&mut self, settings: &Settings, output: &Output) -> Result<Existing> {
        let size = output.size()?;
        *self = Netcdf::parse(settings, &output.read(0, LONGEST_HEADER)?, size)?;
        check_atom_count(settings, self.n_atoms)?;
        Ok(Existing {
            contents: self.contents(settings)?,
            first: self.first_record(settings)?,
            frame_size: self.record_size,
            counted: self.n_records.unwrap_or(size),
        })
    }

    fn is_whole(&self, _: &Settings, _: &Output, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn next(
        &mut self,
        settings: &Settings,
        contents: &Contents,
        heading: &Heading,
        n_frames: u64,
        start: u64,
    ) -> Result<FrameOffsets> {
        let mut framing = vec![self.piece(settings, "time", n_frames, &[heading.time])?];
        if contents.has_cell {
            let (lengths, cosines) = lengths_and_cosines(oriented(&settings.path, &heading.cell)?);
            framing.push(self.piece(settings, CELL_LENGTHS, n_frames, &lengths)?);
            framing.push(self.piece(settings, CELL_ANGLES, n_frames, &angles(cosines))?);
        }
        let fields = contents.fields;
        let written = [fields.positions, fields.velocities, fields.forces];
        let mut starts = Vec::new();
        for (name, _) in VECTORS.iter().zip(written).filter(|(_, written)| *written) {
            starts.push(self.place(name, n_frames)?.1);
        }
        Ok(FrameOffsets {
            starts,
            framing,
            end: start + self.record_size,
            warning: None,
        })
    }

    fn counts(&mut self, settings: &Settings, _: &Contents, n_frames: u64) -> Result<Vec<Piece>> {
        let count = match (self.version, i32::try_from(n_frames)) {
            (5, _) => n_frames.to_be_bytes().to_vec(),
            (_, Ok(count)) => count.to_be_bytes().to_vec(),
            (version, Err(_)) => {
                return Err(unwritable(&settings.path)(format!(
                    "CDF-{version} cannot contain more than 2147483647 frames"
                )));
            }
        };
        Ok(vec![(4, count)])
    }
}
