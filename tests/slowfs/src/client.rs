//! Client side of the file system: request data from servers, and wait.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use libc::c_int;

use crate::clock::{now, wait_until};
use crate::files::{PAGE, SlowFile, slow_file};
use crate::settings::Settings;
use crate::shared::{Count, Server, Shared};

pub struct Client {
    settings: Settings,
    shared: Shared,
}

/// Page after the last read of each descriptor. If the next read continues there, pages are read
/// ahead.
static BEHIND: [AtomicU64; 1024] = [const { AtomicU64::new(u64::MAX) }; 1024];

/// Return the client; `None` if the environment names no folder.
pub fn client() -> Option<&'static Client> {
    static CLIENT: OnceLock<Option<Client>> = OnceLock::new();
    CLIENT
        .get_or_init(|| {
            let settings = Settings::from_environment()?;
            let Some(shared) = Shared::map(&settings) else {
                eprintln!("slowfs: cannot map {:?}", settings.state);
                std::process::abort();
            };
            Some(Client { settings, shared })
        })
        .as_ref()
}

impl Client {
    pub fn slow_file(&self, fd: c_int) -> Option<&'static SlowFile> {
        slow_file(fd, &self.settings.folder)
    }

    /// Account for the opening of a descriptor; the call started at `begun`.
    pub fn opened(&self, fd: c_int, begun: u64) {
        if let Some(file) = self.slow_file(fd) {
            if let Some(behind) = BEHIND.get(fd as usize) {
                behind.store(u64::MAX, Relaxed);
            }
            self.ask_for_name(file, self.settings.open);
            self.spent(Count::Opens, Count::Opening, begun);
        }
    }

    /// Account for a lock that was granted or refused; the call started at `begun`.
    pub fn locked(&self, fd: c_int, begun: u64) {
        if let Some(file) = self.slow_file(fd) {
            self.ask_for_name(file, self.settings.lock);
            self.spent(Count::Locks, Count::Locking, begun);
        }
    }

    /// Account for `n` bytes read; the call started at `begun`.
    pub fn has_read(&self, fd: c_int, offset: u64, n: u64, begun: u64) {
        let Some(file) = self.slow_file(fd) else {
            return;
        };
        let pages = pages(offset, n);
        self.fetch(file, pages.start..pages.end + self.ahead(fd, &pages, file));
        let last = pages.filter_map(|page| file.arrival(page)).max();
        wait_until(last.unwrap_or(0));
        self.shared.count(Count::BytesRead, n);
        self.spent(Count::Reads, Count::Reading, begun);
    }

    /// Account for an announced read of `n` bytes; 0 means all following bytes.
    pub fn announced(&self, fd: c_int, offset: u64, n: u64) {
        if let Some(file) = self.slow_file(fd) {
            let n = if n == 0 { file.n_pages() * PAGE } else { n };
            self.fetch(file, pages(offset, n));
        }
    }

    /// Account for access to data by a call that is not slowed.
    pub fn unseen(&self, fd: c_int) {
        if self.slow_file(fd).is_some() {
            self.shared.count(Count::Unseen, 1);
        }
    }

    /// Return the number of pages to read ahead. It is zero if the program seeks, reads the same
    /// data again, or already requested half of these pages.
    fn ahead(&self, fd: c_int, pages: &Range<u64>, file: &SlowFile) -> u64 {
        let Some(behind) = BEHIND.get(fd as usize) else {
            return 0;
        };
        let expected = behind.swap(pages.end, Relaxed);
        // A read that begins inside a page also continues the previous read.
        let goes_on = pages.start == expected || pages.start + 1 == expected;
        let ahead = self.settings.read_ahead / PAGE;
        let asked = |page| file.arrival(page).is_some();
        let new = asked(pages.end) || !pages.clone().all(asked);
        if goes_on && new && !asked(pages.end + ahead / 2) {
            ahead
        } else {
            0
        }
    }

    /// Request the pages that were not requested yet.
    fn fetch(&self, file: &SlowFile, pages: Range<u64>) {
        let mut page = pages.start;
        let stop = pages.end.min(file.n_pages());
        while page < stop {
            if file.arrival(page).is_some() {
                page += 1;
                continue;
            }
            let stripe = page * PAGE / self.settings.stripe;
            let first = page;
            while page < stop
                && page * PAGE / self.settings.stripe == stripe
                && file.arrival(page).is_none()
            {
                page += 1;
            }
            self.request(file, first..page, stripe);
        }
    }

    /// Request consecutive pages of one stripe from its server.
    fn request(&self, file: &SlowFile, pages: Range<u64>, stripe: u64) {
        let n = pages.end - pages.start;
        let server = (file.number() + stripe) % self.settings.servers as u64;
        let page_time = self.settings.byte * PAGE as f64;
        let transfer = (page_time * n as f64) as u64;
        let end = self
            .shared
            .serve(Server::Data(server), self.settings.request + transfer);
        for (k, page) in pages.enumerate() {
            let remaining = (page_time * (n - 1 - k as u64) as f64) as u64;
            file.arrives(page, self.felt(end - remaining + self.settings.latency));
        }
        self.shared.count(Count::Requests, 1);
        self.shared.count(Count::BytesFetched, n * PAGE);
    }

    /// Wait in the queue of operations on a file that are served one after another.
    fn ask_for_name(&self, file: &SlowFile, cost: u64) {
        let end = self.shared.serve(Server::Names(file.number()), cost);
        wait_until(self.felt(end + self.settings.latency));
    }

    /// Convert a moment to the time at which this process observes it.
    fn felt(&self, moment: u64) -> u64 {
        if self.settings.slow_process == Some(self.shared.process()) {
            let now = now();
            now + (moment.saturating_sub(now) as f64 * self.settings.slow_factor) as u64
        } else {
            moment
        }
    }

    fn spent(&self, calls: Count, time: Count, begun: u64) {
        self.shared.count(calls, 1);
        self.shared.count(time, now() - begun);
    }
}

fn pages(offset: u64, n: u64) -> Range<u64> {
    offset / PAGE..offset.saturating_add(n).div_ceil(PAGE)
}
