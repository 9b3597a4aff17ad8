//! Tests of the cache on a disk.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::format_list::STANDARD;
use crate::source::FileSource;

const SIZE: usize = 3 * BLOCK as usize + 4567;

/// Folder with a trajectory of four blocks, the last one short. The folder is removed when this
/// value is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn bytes(seed: u64) -> Vec<u8> {
    let word = |k: u64| k.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (seed << 32..).flat_map(word).take(SIZE).collect()
}

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("paceline-cache-{name}-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).unwrap();
        folder.write("md", 1);
        folder
    }

    fn write(&self, name: &str, seed: u64) {
        fs::write(self.0.join(name), bytes(seed)).unwrap();
    }

    fn cache(&self, limit: Option<u64>) -> DiskCache {
        DiskCache {
            folder: self.0.join("scratch"),
            limit,
            since: SystemTime::now(),
        }
    }

    fn source(&self, name: &str) -> VerifiedSource<Arc<dyn Source>> {
        let source: Arc<dyn Source> = Arc::new(FileSource::open(&self.0.join(name)).unwrap());
        let samples = STANDARD.samples(&source, SIZE as u64).unwrap();
        let source: Arc<dyn Source> = Arc::new(FileSource::open(&self.0.join(name)).unwrap());
        STANDARD.verified(source, samples).unwrap()
    }

    fn open(&self, name: &str, cache: &DiskCache) -> CachedSource<Arc<dyn Source>> {
        CachedSource::open(self.source(name), cache).unwrap()
    }

    /// Read the whole file in unaligned pieces; return the numbers of bytes that came from the file
    /// and from the cache, and the notice.
    fn read(&self, name: &str, seed: u64, cache: &DiskCache) -> (u64, u64, Option<String>) {
        let (source, expected) = (self.open(name, cache), bytes(seed));
        let mut found = vec![0; SIZE];
        for (k, piece) in found.chunks_mut(70_001).enumerate() {
            source.will_need(k as u64 * 70_001, piece.len() as u64);
            source.read_at(k as u64 * 70_001, piece).unwrap();
        }
        assert!(found == expected, "other bytes");
        let used = source.take_use();
        (source.traffic().bytes, used.bytes, used.notice)
    }

    fn files(&self) -> Vec<PathBuf> {
        let own = self.cache(None).prepare().unwrap();
        let files = fs::read_dir(own).unwrap();
        files.map(|entry| entry.unwrap().path()).collect()
    }
}

const ALL: u64 = SIZE as u64;

#[test]
fn the_second_read_is_from_the_cache() {
    let folder = Folder::new("second");
    let cache = folder.cache(None);
    assert_eq!(folder.read("md", 1, &cache), (ALL, 0, None));
    let fingerprint = folder.source("md").fingerprint();
    let file = |name| (folder.0.join(name), fingerprint);
    let held = cache.held(&[file("md"), file("other")]).unwrap();
    assert_eq!(held, [[true; 4], [false; 4]]);
    assert_eq!(folder.read("md", 1, &cache), (0, ALL, None));
    // A read of a part of the file loads all blocks that overlap this part.
    let source = folder.open("md", &cache);
    let mut buffer = [0; 10];
    source.read_at(BLOCK - 5, &mut buffer).unwrap();
    assert_eq!(source.take_use().bytes, 2 * BLOCK);
    let beyond = source.read_at(SIZE as u64 - 5, &mut buffer).unwrap_err();
    assert!(matches!(beyond, Error::Changed { .. }));
}

#[test]
fn a_folder_of_many_files_is_not_listed_for_each_source() {
    let folder = Folder::new("many");
    folder.write("other", 2);
    let cache = folder.cache(None);
    let own = cache.prepare().unwrap();
    for k in 0..MANY {
        fs::write(own.join(format!("{k:04}-many")), b"1").unwrap();
    }
    let listed = Listed::of(&own).unwrap();
    assert!(listed.bytes > 0);
    assert_eq!(listed.beginning_with("000").count(), 10);
    assert_eq!(folder.read("md", 1, &cache), (ALL, 0, None));
    assert_eq!(folder.read("other", 2, &cache), (ALL, 0, None));
    assert!(Arc::ptr_eq(&listed, &Listed::of(&own).unwrap()));
    // A source whose cache file was created after the folder was listed finds its blocks.
    assert_eq!(folder.read("md", 1, &cache), (0, ALL, None));
    assert_eq!(folder.files().len(), MANY + 2);
}

#[test]
fn damaged_torn_and_foreign_blocks_are_read_again() {
    let folder = Folder::new("damaged");
    folder.write("other", 2);
    let cache = folder.cache(None);
    folder.read("md", 1, &cache);
    let path = folder.files().remove(0);
    let stored = fs::read(&path).unwrap();
    for at in [8, PAGE as usize, PAGE as usize + 2 * BLOCK as usize + 77] {
        let mut damaged = stored.clone();
        damaged[at] ^= 1;
        fs::write(&path, damaged).unwrap();
        assert_eq!(folder.read("md", 1, &cache), (BLOCK, ALL - BLOCK, None));
        assert_eq!(folder.read("md", 1, &cache), (0, ALL, None));
    }
    // The cache file ends within the second block, or within the table.
    for (len, again) in [(PAGE as usize + BLOCK as usize + 9, ALL - BLOCK), (16, ALL)] {
        fs::write(&path, &stored[..len]).unwrap();
        assert_eq!(folder.read("md", 1, &cache), (again, ALL - again, None));
    }
    // The cache file contains the blocks of another trajectory.
    folder.read("other", 2, &cache);
    let other = folder
        .files()
        .into_iter()
        .find(|file| *file != path)
        .unwrap();
    fs::copy(&other, &path).unwrap();
    assert_eq!(folder.read("md", 1, &cache), (ALL, 0, None));
}

#[test]
fn a_modified_file_gets_another_cache_and_the_old_one_is_removed() {
    let folder = Folder::new("modified");
    folder.read("md", 1, &folder.cache(None));
    let before = folder.files();
    // The fingerprint does not depend on this byte, so that it does not change.
    let mut changed = bytes(1);
    changed[20_000] ^= 1;
    fs::write(folder.0.join("md"), &changed).unwrap();
    let source = folder.open("md", &folder.cache(None));
    let mut found = vec![0; SIZE];
    source.read_at(0, &mut found).unwrap();
    assert!(found == changed, "bytes of the old version");
    assert_eq!(source.take_use().bytes, 0);
    let after = folder.files();
    assert_eq!((before.len(), after.len()), (1, 1));
    assert_ne!(before, after);
}

#[test]
fn the_longest_unused_files_are_removed_and_the_limit_holds() {
    let folder = Folder::new("limit");
    let limit = 2 * (ALL + 3 * PAGE);
    for (name, seed) in [("md", 1), ("b", 2), ("c", 3)] {
        folder.write(name, seed);
        folder.read(name, seed, &folder.cache(Some(limit)));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(folder.files().len(), 2);
    assert_eq!(
        folder.read("c", 3, &folder.cache(Some(limit))),
        (0, ALL, None)
    );
    assert_eq!(
        folder.read("b", 2, &folder.cache(Some(limit))),
        (0, ALL, None)
    );
    // All files were used later than `since`: none is removed, and only a part of the new file is
    // cached.
    let cache = DiskCache {
        since: SystemTime::UNIX_EPOCH,
        ..folder.cache(Some(limit + 2 * BLOCK))
    };
    let (_, _, notice) = folder.read("md", 1, &cache);
    assert!(notice.unwrap().contains("the cache is full"));
    let (read, cached, _) = folder.read("md", 1, &cache);
    assert!(
        0 < cached && cached < ALL && read + cached == ALL,
        "{read} {cached}"
    );
    assert_eq!(folder.files().len(), 3);
}

#[test]
fn two_readers_fill_one_cache_at_once() {
    let folder = Folder::new("two");
    let cache = folder.cache(None);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| folder.read("md", 1, &cache));
        }
    });
    assert_eq!(folder.read("md", 1, &cache), (0, ALL, None));
}

#[test]
fn files_that_are_cached_side_by_side_share_the_limit() {
    let folder = Folder::new("beside");
    let seeds = [2, 3, 4, 5];
    for seed in seeds {
        folder.write(&seed.to_string(), seed);
    }
    let cache = DiskCache {
        since: SystemTime::UNIX_EPOCH,
        ..folder.cache(Some(ALL))
    };
    let barrier = std::sync::Barrier::new(seeds.len());
    std::thread::scope(|scope| {
        for seed in seeds {
            let (folder, cache, barrier) = (&folder, &cache, &barrier);
            scope.spawn(move || {
                let source = folder.open(&seed.to_string(), cache);
                barrier.wait();
                source.read_at(0, &mut vec![0; SIZE]).unwrap();
            });
        }
    });
    let stored = folder
        .files()
        .into_iter()
        .map(|file| fs::metadata(file).unwrap());
    let stored: u64 = stored.map(|metadata| os_calls::allocated(&metadata)).sum();
    let beside = seeds.len() as u64 * (BLOCK + PAGE);
    assert!(
        stored <= ALL + beside,
        "{stored} bytes for a limit of {ALL}"
    );
}

#[test]
fn a_removed_cache_is_still_readable() {
    let folder = Folder::new("removed");
    let cache = folder.cache(None);
    let source = folder.open("md", &cache);
    let mut found = vec![0; SIZE];
    source.read_at(0, &mut found[..10]).unwrap();
    fs::remove_dir_all(folder.0.join("scratch")).unwrap();
    source.read_at(0, &mut found).unwrap();
    assert!(found == bytes(1));
}

#[cfg(unix)]
#[test]
fn links_and_unusable_folders_are_refused() {
    let folder = Folder::new("refused");
    let cache = folder.cache(None);
    let own = cache.prepare().unwrap();
    fs::remove_dir(&own).unwrap();
    std::os::unix::fs::symlink(&folder.0, &own).unwrap();
    let message = cache.prepare().unwrap_err().to_string();
    assert!(message.contains("found a link or file"), "{message}");
    let file = DiskCache {
        folder: folder.0.join("md"),
        ..cache
    };
    let message = file.prepare().unwrap_err().to_string();
    assert!(
        message.contains("md: cannot keep a cache there"),
        "{message}"
    );
}
