//! The formats of this crate, one line each.

use crate::format_interface::Registry;
use crate::{dcd, dlpoly, lammps, netcdf3, trr, xtc};

/// All formats of this crate. Messages list formats in this order.
pub static STANDARD: Registry = Registry::new(&[
    &xtc::Xtc,
    &trr::Trr,
    &dcd::Dcd,
    &netcdf3::Netcdf3,
    &dlpoly::History,
    &dlpoly::Config,
    &lammps::LammpsDump,
]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Layout};

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        let known: [(&[u8], &str); 13] = [
            (b"\x00\x00\x07\xcb", "XTC"),
            (b"\x00\x00\x07\xe7\x00\x00\x00\x2a", "XTC"),
            (b"\x00\x00\x07\xc9\0\0\0\x0d\0\0\0\x0c", "TRR"),
            (b"\x54\0\0\0CORD....", "DCD"),
            (b"\0\0\0\x54CORD....", "DCD"),
            (b"\x54\0\0\0\0\0\0\0CORD", "DCD"),
            (b"\0\0\0\0\0\0\0\x54CORD", "DCD"),
            (b"CDF\x01\0\0\0\0", "NetCDF"),
            (b"CDF\x02\xff\xff\xff\xff", "NetCDF"),
            (b"CDF\x05\0\0\0\0", "NetCDF"),
            (b"ITEM: TIMESTEP\n0\n", "LAMMPSDUMP"),
            (b"ITEM: TIME\r\n0.5\r\n", "LAMMPSDUMP"),
            (b"ITEM: UNITS\nreal\n", "LAMMPSDUMP"),
        ];
        for (head, format) in known {
            let found = STANDARD.detect(head).map(Format::name);
            assert_eq!(found, Some(format), "{head:?}");
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
            assert!(STANDARD.detect(head).is_none(), "{head:?}");
        }
    }

    #[test]
    fn a_layout_survives_its_bytes_and_garbage_is_refused() {
        let n_atoms = 3341;
        let (xtc, trr) = (xtc::XtcLayout { n_atoms }, trr::TrrLayout { n_atoms });
        for layout in [Layout::new(xtc), Layout::new(trr)] {
            let bytes = layout.to_bytes();
            assert_eq!(STANDARD.layout(&bytes), Some(layout));
            assert_eq!(STANDARD.layout(&bytes[..9]), None);
            assert_eq!(STANDARD.layout(&[&bytes[..], &[0]].concat()), None);
            let too_many = [1, bytes[1], 255, 255, 255, 255, 0, 0, 0, 0];
            assert_eq!(STANDARD.layout(&too_many), None);
        }
        for bytes in [
            &[][..],
            &[1],
            &[2, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            &[1, 9, 0],
            &[1, 2, 3],
        ] {
            assert_eq!(STANDARD.layout(bytes), None, "{bytes:?}");
        }
    }
}
