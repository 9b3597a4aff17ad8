//! Makes the decoder of a file.

use super::Extents;
use crate::atom_set::Atoms;
use crate::dcd::{self, DcdDecoder};
use crate::dlpoly::DlpolyDecoder;
use crate::error::{Error, Result};
use crate::netcdf3::NetcdfDecoder;
use crate::source::Source;
use crate::trr::TrrDecoder;
use crate::xtc::XtcDecoder;
use crate::{Decoder, Fields, Layout};

/// The decoder of what is wanted of a file's frames.
pub(super) fn make_decoder(
    source: &dyn Source,
    file_size: u64,
    layout: &Layout,
    atoms: Atoms,
    wanted: Fields,
) -> Result<Box<dyn Decoder>> {
    // For formats that hold positions only.
    let placed = |atoms: Atoms| match wanted.positions {
        true => Ok(atoms),
        false => Atoms::new(&[], atoms.n_total()),
    };
    Ok(match layout {
        Layout::Xtc { .. } => Box::new(XtcDecoder::new(placed(atoms)?)),
        Layout::Trr { .. } => Box::new(TrrDecoder::new(atoms, wanted)),
        Layout::Dcd(layout) => {
            let mut decoder = DcdDecoder::new(layout.clone(), placed(atoms)?);
            if decoder.needs_first_frame() {
                read_first_frame(source, file_size, layout, &mut decoder)?;
            }
            Box::new(decoder)
        }
        Layout::Netcdf3(layout) => Box::new(NetcdfDecoder::new(*layout.clone(), atoms, wanted)),
        Layout::Dlpoly(layout) => Box::new(DlpolyDecoder::new(*layout, atoms, wanted)),
    })
}

/// Show the decoder the atoms that only the first frame of a DCD file holds.
fn read_first_frame(
    source: &dyn Source,
    file_size: u64,
    layout: &dcd::Layout,
    decoder: &mut DcdDecoder,
) -> Result<()> {
    let (start, size) = (layout.header_size(), layout.first_frame_size());
    let extents = Extents {
        frames: &[0],
        offsets: &[start],
        sizes: &[size],
    };
    extents.check(file_size)?;
    let mut first = vec![0; size as usize];
    source.read_at(start, &mut first)?;
    decoder
        .set_first_frame(&first)
        .map_err(|fault| Error::damaged(source.path(), Some(0), start, size, fault))
}
