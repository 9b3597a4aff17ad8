//! Source of the bytes of a local file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::{Source, Traffic};
use crate::error::{Error, Result};
use crate::os_calls;

/// File that is read at offsets.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    file: File,
    bytes: AtomicU64,
    calls: AtomicU64,
}

impl FileSource {
    /// Open a file for reads at offsets.
    ///
    /// # Errors
    /// [`Error::Io`] if the system reports an error, or if the path is not a file.
    pub fn open(path: &Path) -> Result<Self> {
        let file = os_calls::open_without_waiting(path)
            .map_err(|source| Error::io(path, "cannot open", source))?;
        let kind = file
            .metadata()
            .map_err(|source| Error::io(path, "cannot stat", source))?
            .file_type();
        if !kind.is_file() {
            let kind = if kind.is_dir() {
                "a directory"
            } else {
                "a pipe or device"
            };
            return Err(Error::Unsupported {
                path: path.to_owned(),
                what: format!("expected a regular file, found {kind}"),
            });
        }
        Ok(FileSource {
            path: path.to_owned(),
            file,
            bytes: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        })
    }
}

impl Source for FileSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn size(&self) -> Result<u64> {
        match self.file.metadata() {
            Ok(metadata) => Ok(metadata.len()),
            Err(source) => Err(Error::io(&self.path, "cannot stat", source)),
        }
    }

    /// Return the time of the last modification, ns since 1970.
    fn version(&self) -> Result<u64> {
        let modified = self.file.metadata().and_then(|found| found.modified());
        let modified = modified.map_err(|why| Error::io(&self.path, "cannot stat", why))?;
        let since = modified.duration_since(SystemTime::UNIX_EPOCH);
        Ok(since.unwrap_or_default().as_nanos() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        // Calls are counted individually and not made by read_exact_at, so that the counts are
        // those of system calls.
        let mut done = 0;
        while done < buffer.len() {
            self.calls.fetch_add(1, Ordering::Relaxed);
            match os_calls::read_at(&self.file, &mut buffer[done..], offset + done as u64) {
                Ok(0) => {
                    return Err(Error::Changed {
                        path: self.path.clone(),
                        what: format!(
                            "it ends at byte {}, before byte {}",
                            offset + done as u64,
                            offset + buffer.len() as u64
                        ),
                    });
                }
                Ok(n) => {
                    self.bytes.fetch_add(n as u64, Ordering::Relaxed);
                    done += n;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let at = offset + done as u64;
                    return Err(Error::io(
                        &self.path,
                        format!("cannot read at byte {at}"),
                        error,
                    ));
                }
            }
        }
        Ok(())
    }

    fn will_need(&self, offset: u64, len: u64) {
        os_calls::will_need(&self.file, offset, len);
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            bytes: self.bytes.load(Ordering::Relaxed),
            calls: self.calls.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_file_is_a_changed_file() {
        let path = std::env::temp_dir().join(format!("paceline-source-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let source = FileSource::open(&path).unwrap();
        let mut buffer = [0; 4];
        source.read_at(6, &mut buffer).unwrap();
        assert_eq!(&buffer, b"6789");
        let error = source.read_at(8, &mut buffer).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("ends at byte 10, before byte 12")
        );
        assert_eq!(source.traffic().bytes, 6);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_directory_is_refused_by_name() {
        let error = FileSource::open(&std::env::temp_dir()).unwrap_err();
        assert!(error.to_string().contains("found a directory"));
    }
}
