//! Which formats there are, and what a worker must know of a file to decode its frames.

use super::{Fields, dcd, dlpoly, netcdf3, trr, xtc};

/// The formats that we index, by what their files begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Xtc,
    Trr,
    Dcd,
    Netcdf3,
    History,
    Config,
}

impl Format {
    pub const ALL: [Format; 6] = [
        Format::Xtc,
        Format::Trr,
        Format::Dcd,
        Format::Netcdf3,
        Format::History,
        Format::Config,
    ];

    /// Bytes that [`Format::detect`] looks at: of text, five lines as long as DL_POLY's longest.
    pub const HEAD_LEN: usize = 1024;

    /// Recognise a file by its first bytes, never by its name.
    pub fn detect(head: &[u8]) -> Option<Format> {
        Format::ALL.into_iter().find(|format| match format {
            Format::Xtc => [xtc::MAGIC_1995, xtc::MAGIC_2023]
                .iter()
                .any(|magic| head.starts_with(&magic.to_be_bytes())),
            Format::Trr => head.starts_with(&trr::MAGIC.to_be_bytes()),
            // A Fortran record of 84 bytes: its length in 4 or 8 bytes, then its first word.
            Format::Dcd => [
                &[84, 0, 0, 0, b'C', b'O', b'R', b'D'][..],
                &[0, 0, 0, 84, b'C', b'O', b'R', b'D'],
                &[84, 0, 0, 0, 0, 0, 0, 0, b'C', b'O', b'R', b'D'],
                &[0, 0, 0, 0, 0, 0, 0, 84, b'C', b'O', b'R', b'D'],
            ]
            .iter()
            .any(|start| head.starts_with(start)),
            Format::Netcdf3 => [b"CDF\x01", b"CDF\x02", b"CDF\x05"]
                .iter()
                .any(|magic| head.starts_with(*magic)),
            Format::History => dlpoly::detect(head) == Some(dlpoly::Kind::History),
            Format::Config => dlpoly::detect(head) == Some(dlpoly::Kind::Config),
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Format::Xtc => "XTC",
            Format::Trr => "TRR",
            Format::Dcd => "DCD",
            Format::Netcdf3 => "NetCDF",
            Format::History => "HISTORY",
            Format::Config => "CONFIG",
        }
    }
}

/// How a file codes its frames: all that a worker needs beside a frame's bytes to decode it.
#[derive(Debug, Clone, PartialEq)]
pub enum Layout {
    Xtc { n_atoms: usize },
    Trr { n_atoms: usize },
    Dcd(dcd::Layout),
    Netcdf3(Box<netcdf3::Layout>),
    Dlpoly(dlpoly::Layout),
}

impl Layout {
    const VERSION: u8 = 1;
    const XTC: u8 = 1;
    const DCD: u8 = 2;
    const TRR: u8 = 3;
    const NETCDF3: u8 = 4;
    const DLPOLY: u8 = 5;

    pub fn format(&self) -> Format {
        match self {
            Layout::Xtc { .. } => Format::Xtc,
            Layout::Trr { .. } => Format::Trr,
            Layout::Dcd(_) => Format::Dcd,
            Layout::Netcdf3(_) => Format::Netcdf3,
            Layout::Dlpoly(layout) => match layout.kind() {
                dlpoly::Kind::History => Format::History,
                dlpoly::Kind::Config => Format::Config,
            },
        }
    }

    /// The format's usual name.
    pub fn name(&self) -> &'static str {
        self.format().name()
    }

    /// What frames may hold.
    pub fn fields(&self) -> Fields {
        match self {
            Layout::Xtc { .. } | Layout::Dcd(_) => Fields::POSITIONS,
            Layout::Trr { .. } => Fields::ALL,
            Layout::Netcdf3(layout) => layout.fields(),
            Layout::Dlpoly(layout) => layout.fields(),
        }
    }

    /// Atoms of a frame.
    pub fn n_atoms(&self) -> usize {
        match self {
            Layout::Xtc { n_atoms } | Layout::Trr { n_atoms } => *n_atoms,
            Layout::Dcd(layout) => layout.n_atoms(),
            Layout::Netcdf3(layout) => layout.n_atoms(),
            Layout::Dlpoly(layout) => layout.n_atoms(),
        }
    }

    /// Offset of the first frame, where frames stand one behind another.
    pub fn start(&self) -> u64 {
        match self {
            Layout::Xtc { .. } | Layout::Trr { .. } => 0,
            Layout::Dcd(layout) => layout.header_size(),
            Layout::Netcdf3(layout) => layout.start(),
            Layout::Dlpoly(layout) => layout.start(),
        }
    }

    /// What files must have in common for the frames of one to continue those of the other: name
    /// and value.
    pub fn traits(&self) -> Vec<(&'static str, String)> {
        let mut traits = vec![
            ("format", self.name().to_owned()),
            ("atoms", self.n_atoms().to_string()),
        ];
        match self {
            Layout::Dcd(layout) => traits.extend(layout.traits()),
            Layout::Dlpoly(layout) => traits.extend(layout.traits()),
            Layout::Xtc { .. } | Layout::Trr { .. } | Layout::Netcdf3(_) => {}
        }
        traits
    }

    /// The layout in few bytes: a version, the format, and what the format needs.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (format, payload) = match self {
            Layout::Xtc { n_atoms } => (Layout::XTC, (*n_atoms as u64).to_le_bytes().to_vec()),
            Layout::Trr { n_atoms } => (Layout::TRR, (*n_atoms as u64).to_le_bytes().to_vec()),
            Layout::Dcd(layout) => (Layout::DCD, layout.to_bytes()),
            Layout::Netcdf3(layout) => (Layout::NETCDF3, layout.to_bytes()),
            Layout::Dlpoly(layout) => (Layout::DLPOLY, layout.to_bytes()),
        };
        [&[Layout::VERSION, format], &payload[..]].concat()
    }

    /// What [`Layout::to_bytes`] gave; nothing for bytes that it cannot have given.
    pub fn from_bytes(bytes: &[u8]) -> Option<Layout> {
        match bytes {
            [
                Layout::VERSION,
                format @ (Layout::XTC | Layout::TRR),
                n_atoms @ ..,
            ] => {
                let n_atoms = u64::from_le_bytes(n_atoms.try_into().ok()?);
                // Both count atoms in 31 bits.
                let n_atoms = i32::try_from(n_atoms).ok()? as usize;
                Some(match *format {
                    Layout::XTC => Layout::Xtc { n_atoms },
                    _ => Layout::Trr { n_atoms },
                })
            }
            [Layout::VERSION, Layout::DCD, layout @ ..] => {
                dcd::Layout::from_bytes(layout).map(Layout::Dcd)
            }
            [Layout::VERSION, Layout::NETCDF3, layout @ ..] => {
                let layout = netcdf3::Layout::from_bytes(layout)?;
                Some(Layout::Netcdf3(Box::new(layout)))
            }
            [Layout::VERSION, Layout::DLPOLY, layout @ ..] => {
                dlpoly::Layout::from_bytes(layout).map(Layout::Dlpoly)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        let known: [(&[u8], Format); 10] = [
            (b"\x00\x00\x07\xcb", Format::Xtc),
            (b"\x00\x00\x07\xe7\x00\x00\x00\x2a", Format::Xtc),
            (b"\x00\x00\x07\xc9\0\0\0\x0d\0\0\0\x0c", Format::Trr),
            (b"\x54\0\0\0CORD....", Format::Dcd),
            (b"\0\0\0\x54CORD....", Format::Dcd),
            (b"\x54\0\0\0\0\0\0\0CORD", Format::Dcd),
            (b"\0\0\0\0\0\0\0\x54CORD", Format::Dcd),
            (b"CDF\x01\0\0\0\0", Format::Netcdf3),
            (b"CDF\x02\xff\xff\xff\xff", Format::Netcdf3),
            (b"CDF\x05\0\0\0\0", Format::Netcdf3),
        ];
        for (head, format) in known {
            assert_eq!(Format::detect(head), Some(format), "{head:?}");
        }
        let unknown: [&[u8]; 6] = [
            b"",
            b"\x00\x00\x07",
            b"\x54\0\0\0VELD....",
            b"\x89HDF\r\n\x1a\n",
            b"ATOM  ",
            b"CDF\x03\0\0\0\0",
        ];
        for head in unknown {
            assert_eq!(Format::detect(head), None, "{head:?}");
        }
    }

    #[test]
    fn a_layout_survives_its_bytes_and_garbage_is_refused() {
        for layout in [Layout::Xtc { n_atoms: 3341 }, Layout::Trr { n_atoms: 3341 }] {
            let bytes = layout.to_bytes();
            assert_eq!(Layout::from_bytes(&bytes), Some(layout));
            assert_eq!(Layout::from_bytes(&bytes[..9]), None);
            assert_eq!(Layout::from_bytes(&[&bytes[..], &[0]].concat()), None);
            let too_many = [1, bytes[1], 255, 255, 255, 255, 0, 0, 0, 0];
            assert_eq!(Layout::from_bytes(&too_many), None);
        }
        for bytes in [
            &[][..],
            &[1],
            &[2, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            &[1, 9, 0],
            &[1, 2, 3],
        ] {
            assert_eq!(Layout::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
