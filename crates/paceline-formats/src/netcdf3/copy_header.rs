//! Header of a file to which records are copied, and the traits that files must share if their
//! records are copied into one file.

use std::hash::{DefaultHasher, Hasher};

use super::header::{Attribute, CHAR, DOUBLE, FLOAT, Header, Variable};
use super::{Arrangement, Layout};
use crate::error::{Error, Result};
use crate::format_interface::{REMARK, Traits, unsupported};
use crate::index::fixed_size::read_head;
use crate::source::Source;

/// Maximum number of bytes before the first record: header, and variables that are not in records.
const MAX_HEAD: u64 = 1 << 26;
/// Maximum length of a text that a trait contains unchanged, bytes. A digest replaces a longer
/// text.
const MAX_TEXT: usize = 200;

/// Create the header of a file to which `n_frames` records are copied. It includes the variables
/// that are not in records.
///
/// # Errors
/// [`Error::Unsupported`] if frames are not records, and errors of the source.
pub fn head(layout: &Layout, source: &dyn Source, n_frames: u64) -> Result<Vec<u8>> {
    let mut head = before_records(layout, source)?;
    let wide = head.get(3) == Some(&5);
    let count = match i32::try_from(n_frames) {
        // A field with all 32 bits set means that readers compute the number from the size of the
        // file.
        Err(_) if !wide => u64::from(u32::MAX),
        _ => n_frames,
    };
    let count = &count.to_be_bytes()[if wide { 0 } else { 4 }..];
    head[4..4 + count.len()].copy_from_slice(count);
    Ok(head)
}

/// Return the traits of a file: version, dimensions, state of the times, variables, attributes, and
/// the values of the variables that are not in records. There are none if frames are not records.
///
/// # Errors
/// As [`head`].
pub fn traits(layout: &Layout, source: &dyn Source) -> Result<Traits> {
    if let Arrangement::Arrays { .. } = layout.arrangement() {
        return Ok(Vec::new()); // its frames cannot be copied
    }
    let head = before_records(layout, source)?;
    let header = Header::parse(&head, head.len() as u64)
        .map_err(|fault| Error::damaged(source.path(), None, 0, head.len() as u64, fault))?;
    let mut traits = vec![("version".to_owned(), format!("CDF-{}", header.version))];
    let dimensions = header.dimensions.iter().filter(|one| one.len > 0);
    traits.extend(dimensions.map(|one| {
        let name = format!("dimension {}", one.name.escape_ascii());
        (name, one.len.to_string())
    }));
    traits.push((
        "times".to_owned(),
        layout.clock().doubt().unwrap_or("stated").to_owned(),
    ));
    for variable in &header.variables {
        let name = format!("variable {}", variable.name.escape_ascii());
        traits.push((
            name,
            describe_variable(&header, variable, layout.start(), &head),
        ));
    }
    traits.extend(header.attributes.iter().map(|one| {
        let name = format!("{REMARK}{}", one.name.escape_ascii());
        (name, value_of(one.kind, one.values))
    }));
    Ok(traits)
}

/// Read the bytes before the first record. Refuse a file whose frames are not records, or in which
/// another variable does not end before the first record.
fn before_records(layout: &Layout, source: &dyn Source) -> Result<Vec<u8>> {
    let refused = |what: String| Err(unsupported(source.path(), what));
    let size = layout.start();
    if let Arrangement::Arrays { .. } = layout.arrangement() {
        return refused(
            "its frames are not records but parts of arrays, which cannot be copied frame by \
             frame: paceline convert writes them again"
                .to_owned(),
        );
    }
    if size > MAX_HEAD {
        return refused(format!(
            "its first record begins at byte {size}, and paceline copies headers of at most \
             {MAX_HEAD} bytes: paceline convert writes it again"
        ));
    }
    let others = read_head(source, source.size()?, |head, size| {
        let header = Header::parse(head, size)?;
        let mut fixed = header.variables.iter().filter(|one| !one.in_records);
        let behind = fixed.find(|one| one.begin.saturating_add(one.size) > layout.start());
        Ok(behind.map(|one| one.name.escape_ascii().to_string()))
    })?;
    if let Some(name) = others {
        return refused(format!(
            "its variable \"{name}\" does not end before the first record: paceline convert \
             writes it again"
        ));
    }
    let mut head = vec![0; size as usize];
    source.read_at(0, &mut head)?;
    Ok(head)
}

/// Describe a variable: its type, its dimensions, its attributes, and its offset in a record. If it
/// is not in records, its value replaces the offset.
fn describe_variable(
    header: &Header<'_>,
    variable: &Variable<'_>,
    start: u64,
    head: &[u8],
) -> String {
    let name = |&number: &usize| header.dimensions[number].name.escape_ascii().to_string();
    let dimensions: Vec<String> = variable.dimensions.iter().map(name).collect();
    let kind = match variable.kind {
        CHAR => "char".to_owned(),
        FLOAT => "float".to_owned(),
        DOUBLE => "double".to_owned(),
        other => format!("type {other}"),
    };
    let mut text = format!("{kind} ({})", dimensions.join(", "));
    if variable.in_records {
        text += &format!(
            " at byte {} of a frame",
            variable.begin.saturating_sub(start)
        );
    } else {
        let begin = variable.begin as usize;
        let values = head.get(begin..begin.saturating_add(variable.size as usize));
        text += &format!(" = {}", value_of(variable.kind, values.unwrap_or_default()));
    }
    for Attribute { name, kind, values } in &variable.attributes {
        text += &format!(", {} {}", name.escape_ascii(), value_of(*kind, values));
    }
    text
}

/// Convert the values of an attribute or variable to text: characters, a number, or a digest.
fn value_of(kind: u32, values: &[u8]) -> String {
    if kind == CHAR && values.len() <= MAX_TEXT {
        return format!("\"{}\"", values.escape_ascii());
    }
    if kind == DOUBLE
        && let Ok(bytes) = values.try_into()
    {
        return f64::from_be_bytes(bytes).to_string();
    }
    if kind == FLOAT
        && let Ok(bytes) = values.try_into()
    {
        return f32::from_be_bytes(bytes).to_string();
    }
    let mut hasher = DefaultHasher::new();
    hasher.write(values);
    format!("{} bytes with digest {:x}", values.len(), hasher.finish())
}
