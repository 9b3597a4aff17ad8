//! Calls of the operating system that differ between Linux, macOS and Windows.

#[cfg(unix)]
pub use unix::{allocated, available, close, create_new, is_own, is_removed, user};
#[cfg(unix)]
pub use unix::{
    create_private_folder, open_private, open_unless_link, open_without_waiting, read_at,
};
#[cfg(unix)]
pub use unix::{
    host_name, is_same_file, path_of_bytes, reserve, user_name, will_need, write_all_at,
};
#[cfg(windows)]
pub use windows::{allocated, available, close, create_new, is_own, is_removed, user};
#[cfg(windows)]
pub use windows::{
    create_private_folder, open_private, open_unless_link, open_without_waiting, read_at,
};
#[cfg(windows)]
pub use windows::{
    host_name, is_same_file, path_of_bytes, reserve, user_name, will_need, write_all_at,
};

#[cfg(unix)]
mod unix {
    use std::ffi::{CStr, CString, OsStr};
    use std::fs::{DirBuilder, File, Metadata, OpenOptions};
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
    use std::path::{Path, PathBuf};

    /// Open a file for reading; a pipe is opened without waiting for a writer.
    pub fn open_without_waiting(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK).open(path)
    }

    /// Open a file for writing, unless the path is a symbolic link.
    pub fn open_unless_link(path: &Path) -> io::Result<File> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(path)
    }

    /// Create a new file; only this user can open a `private` one.
    pub fn create_new(path: &Path, private: bool) -> io::Result<File> {
        let mode = if private { 0o600 } else { 0o666 };
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)
    }

    /// Open a file for reading and writing. If it does not exist, create it so that only this user
    /// can open it.
    pub fn open_private(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.mode(0o600).open(path)
    }

    /// Create a folder that only this user can open.
    pub fn create_private_folder(path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    /// Read with one call from `offset` on, and return the number of bytes read. It is 0 beyond the
    /// end of the file.
    pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buffer, offset)
    }

    /// Write all bytes from `offset` on.
    pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    /// Ask the system to prefetch a range, if it supports that.
    #[cfg(target_os = "linux")]
    pub fn will_need(file: &File, offset: u64, len: u64) {
        // SAFETY: posix_fadvise gets a descriptor that `file` keeps open, and three integers; it
        // accesses no memory of the process. Its result is ignored, because prefetching is
        // optional.
        unsafe {
            libc::posix_fadvise(
                file.as_raw_fd(),
                offset as libc::off_t,
                len as libc::off_t,
                libc::POSIX_FADV_WILLNEED,
            );
        }
    }

    /// Ask the system to prefetch a range, if it supports that.
    #[cfg(target_vendor = "apple")]
    pub fn will_need(file: &File, offset: u64, len: u64) {
        let advice = libc::radvisory {
            ra_offset: offset as libc::off_t,
            ra_count: len.min(i32::MAX as u64) as libc::c_int,
        };
        // SAFETY: F_RDADVISE gets a descriptor that `file` keeps open, and a pointer to a
        // `radvisory`. It only reads the `radvisory`, which lives until the call returns. Its
        // result is ignored, because prefetching is optional.
        unsafe {
            libc::fcntl(file.as_raw_fd(), libc::F_RDADVISE, &raw const advice);
        }
    }

    /// Do nothing: the system supports no prefetching.
    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    pub fn will_need(_file: &File, _offset: u64, _len: u64) {}

    /// True if both are the metadata of one file.
    pub fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    }

    /// Size of a file on the disk, bytes; holes are not counted.
    pub fn allocated(metadata: &Metadata) -> u64 {
        metadata.blocks() * 512
    }

    /// True if an open file no longer has a name in a folder.
    pub fn is_removed(metadata: &Metadata) -> bool {
        metadata.nlink() == 0
    }

    /// ID of the user of this process, as a text for file names.
    pub fn user() -> String {
        user_id().to_string()
    }

    /// True if a file belongs to the user of this process.
    pub fn is_own(metadata: &Metadata) -> bool {
        metadata.uid() == user_id()
    }

    fn user_id() -> u32 {
        // SAFETY: `geteuid` has no arguments, and always succeeds.
        unsafe { libc::geteuid() }
    }

    /// Free space that this user may fill on the disk of a folder, bytes.
    #[expect(clippy::allow_attributes, reason = "the types differ between systems")]
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    pub fn available(folder: &Path) -> io::Result<u64> {
        let name = CString::new(folder.as_os_str().as_bytes())?;
        let mut found = MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: `statvfs` reads `name`, which ends with a zero byte, and writes a `statvfs` to
        // `found`, which has space for it. Both live until the call returns.
        if unsafe { libc::statvfs(name.as_ptr(), found.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so that it has written all fields.
        let found = unsafe { found.assume_init() };
        Ok((found.f_bavail as u64).saturating_mul(found.f_frsize as u64))
    }

    /// Create a path from its bytes, in the encoding of the system or of `OsStr::as_encoded_bytes`.
    pub fn path_of_bytes(bytes: &[u8]) -> PathBuf {
        OsStr::from_bytes(bytes).into()
    }

    /// Name of this host; empty if it is unknown.
    pub fn host_name() -> Vec<u8> {
        let mut name = vec![0; 256];
        // SAFETY: `gethostname` writes at most the given number of bytes to `name`; the last byte
        // stays zero.
        let status = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
        let len = name.iter().position(|&byte| byte == 0);
        name.truncate(if status == 0 { len.unwrap_or(0) } else { 0 });
        name
    }

    /// Reserve disk space for `size` bytes of a file from `offset` on, if the file system supports
    /// that.
    #[cfg(target_os = "linux")]
    pub fn reserve(file: &File, offset: u64, size: usize) -> io::Result<()> {
        if size == 0 {
            return Ok(());
        }
        let (offset, size) = (offset as libc::off_t, size as libc::off_t);
        // SAFETY: posix_fallocate gets a descriptor that `file` keeps open, and two integers; it
        // accesses no memory of the process.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset, size) } {
            0 | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Do nothing, because this system allocates space when bytes are written.
    #[cfg(not(target_os = "linux"))]
    pub fn reserve(_file: &File, _offset: u64, _size: usize) -> io::Result<()> {
        Ok(())
    }

    /// Full name of the user of this process. If it is unknown, the login name, or "unknown".
    pub fn user_name() -> String {
        let names = ["LOGNAME", "USER", "LNAME", "USERNAME"];
        let login = names
            .iter()
            .filter_map(std::env::var_os)
            .find(|name| !name.is_empty())
            .and_then(|name| CString::new(name.into_encoded_bytes()).ok());
        let entry = user_entry(login.as_deref());
        let login = login.or_else(|| entry.as_ref().map(|(login, _)| login.clone()));
        let full = entry.map(|(_, full)| full.to_string_lossy().into_owned());
        let full = full.and_then(|full| full.split(',').next().map(str::to_owned));
        match (full.filter(|full| !full.is_empty()), login) {
            (Some(full), _) => full,
            (None, Some(login)) => login.to_string_lossy().into_owned(),
            (None, None) => "unknown".into(),
        }
    }

    /// Login name of a user, and the comment field of the user's entry, which contains the full
    /// name. If `login` is `None`, the user is that of this process.
    fn user_entry(login: Option<&CStr>) -> Option<(CString, CString)> {
        let mut buffer = vec![0; 1 << 16];
        let mut found = std::ptr::null_mut();
        let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let (place, len) = (entry.as_mut_ptr(), buffer.len());
        // SAFETY: the login name ends with a zero byte; the functions write to `entry`, and at most
        // `len` bytes to `buffer`. Both live until the copies below have been made.
        unsafe {
            match login {
                Some(login) => {
                    let login = login.as_ptr();
                    libc::getpwnam_r(login, place, buffer.as_mut_ptr(), len, &raw mut found)
                }
                None => {
                    let user = libc::getuid();
                    libc::getpwuid_r(user, place, buffer.as_mut_ptr(), len, &raw mut found)
                }
            };
            let entry = found.as_ref()?;
            let text = |text: *const libc::c_char| match text.is_null() {
                true => CString::default(),
                false => CStr::from_ptr(text).to_owned(),
            };
            Some((text(entry.pw_name), text(entry.pw_gecos)))
        }
    }

    /// Close a file and return the result. With delayed writes, as in NFS, some write errors are
    /// reported only here.
    pub fn close(file: File) -> io::Result<()> {
        let descriptor = file.into_raw_fd();
        // SAFETY: `into_raw_fd` transferred ownership of the descriptor, so nothing else uses or
        // closes it.
        if unsafe { libc::close(descriptor) } == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // The descriptor is closed even if the call was interrupted.
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        }
    }
}

/// The functions of the module `unix`, for Windows. Files are opened with the sharing flags of the
/// standard library, so that several programs can open, rename and delete a file.
#[cfg(windows)]
mod windows {
    use std::fs::{File, Metadata, OpenOptions};
    use std::io;
    use std::os::windows::fs::{FileExt, MetadataExt, OpenOptionsExt};
    use std::path::{Path, PathBuf};

    /// Flag that allows opening folders, so that they can be refused with a clear message.
    const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;
    /// Flag that opens a link itself instead of its target.
    const FILE_FLAG_OPEN_REPARSE_POINT: u32 = 0x0020_0000;

    pub fn open_without_waiting(path: &Path) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .custom_flags(FILE_FLAG_BACKUP_SEMANTICS)
            .open(path)
    }

    pub fn open_unless_link(path: &Path) -> io::Result<File> {
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(FILE_FLAG_OPEN_REPARSE_POINT)
            .open(path)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("not a regular file")),
        }
    }

    /// Open a file for reading and writing. If it does not exist, create it with the permissions of
    /// the folder.
    pub fn open_private(path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(path)
    }

    /// Create a folder with the permissions of the folder that contains it.
    pub fn create_private_folder(path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    /// Create a new file. Its permissions are those of the folder, since Windows has no
    /// mode.
    pub fn create_new(path: &Path, _private: bool) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
    }

    /// Read once from `offset` on. The file's cursor moves, but no code uses it.
    pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        check(offset)?;
        file.seek_read(buffer, offset)
    }

    /// Write all bytes from `offset` on. The file's cursor moves, but no code uses it.
    pub fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            check(offset)?;
            match file.seek_write(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Refuse an impossible offset, as other systems do. On Windows, the two largest offsets mean
    /// the end of the file and the cursor.
    fn check(offset: u64) -> io::Result<()> {
        match i64::try_from(offset) {
            Ok(_) => Ok(()),
            Err(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    pub fn will_need(_file: &File, _offset: u64, _len: u64) {}

    /// True if two files have the same creation time, because stable Rust cannot identify a file
    /// here.
    pub fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
        one.creation_time() == other.creation_time()
    }

    /// Size of the content of a file, bytes. On Windows, holes are counted.
    pub fn allocated(metadata: &Metadata) -> u64 {
        metadata.len()
    }

    /// Return false: a file that is open keeps its name.
    pub fn is_removed(_metadata: &Metadata) -> bool {
        false
    }

    pub fn user() -> String {
        let name = std::env::var("USERNAME").unwrap_or_default();
        name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")
    }

    /// Return true, because stable Rust cannot find the owner of a file here.
    pub fn is_own(_metadata: &Metadata) -> bool {
        true
    }

    /// Return the largest number, because stable Rust cannot find the free space of a disk here.
    pub fn available(_folder: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    pub fn path_of_bytes(bytes: &[u8]) -> PathBuf {
        String::from_utf8_lossy(bytes).into_owned().into()
    }

    pub fn host_name() -> Vec<u8> {
        std::env::var_os("COMPUTERNAME")
            .unwrap_or_default()
            .into_encoded_bytes()
    }

    pub fn reserve(_file: &File, _offset: u64, _size: usize) -> io::Result<()> {
        Ok(())
    }

    pub fn user_name() -> String {
        std::env::var("USERNAME").unwrap_or_else(|_| "unknown".into())
    }

    /// Close a file. Windows reports no write errors here.
    pub fn close(_file: File) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_no_file_can_have_is_refused() {
        let name = format!("paceline-system-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let file = create_new(&path, true).unwrap();
        write_all_at(&file, b"0123456789", 0).unwrap();
        for offset in [u64::MAX, u64::MAX - 1, 1 << 63] {
            write_all_at(&file, b"x", offset).unwrap_err();
        }
        close(file).unwrap();
        let file = open_without_waiting(&path).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(read_at(&file, &mut buffer, 6).unwrap(), 4);
        assert_eq!(&buffer[..4], b"6789");
        assert_eq!(read_at(&file, &mut buffer, 10).unwrap(), 0);
        read_at(&file, &mut buffer, u64::MAX).unwrap_err();
        create_new(&path, false).unwrap_err();
        drop(file);
        std::fs::remove_file(&path).unwrap();
    }
}
