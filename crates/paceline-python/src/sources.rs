//! Sources of bytes by their names. Only this module chooses the kind of a source.

use std::path::Path;
use std::sync::Arc;

use paceline_formats::error;
use paceline_formats::source::{FileSource, Source};

/// Open the source of the bytes of a trajectory.
pub(super) fn open(path: &Path) -> error::Result<Arc<dyn Source>> {
    Ok(Arc::new(FileSource::open(path)?))
}
