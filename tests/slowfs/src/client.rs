//! What a client of the file system does when a program calls: ask servers, and wait.

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

/// The page behind the last read of each descriptor: of one that reads on there, more is fetched.
static BEHIND: [AtomicU64; 1024] = [const { AtomicU64::new(u64::MAX) }; 1024];

/// None where the environment names no folder.
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

    /// A descriptor has been opened, from `begun` on.
    pub fn opened(&self, fd: c_int, begun: u64) {
        if let Some(file) = self.slow_file(fd) {
            if let Some(behind) = BEHIND.get(fd as usize) {
                behind.store(u64::MAX, Relaxed);
            }
            self.ask_for_name(file, self.settings.open);
            self.spent(Count::Opens, Count::Opening, begun);
        }
    }

    /// A lock has been granted or refused, after waiting for it from `begun` on.
    pub fn locked(&self, fd: c_int, begun: u64) {
        if let Some(file) = self.slow_file(fd) {
            self.ask_for_name(file, self.settings.lock);
            self.spent(Count::Locks, Count::Locking, begun);
        }
    }

    /// So many bytes have been read, from `begun` on.
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

    /// So many bytes will be read; none means all that follow.
    pub fn announced(&self, fd: c_int, offset: u64, n: u64) {
        if let Some(file) = self.slow_file(fd) {
            let n = if n == 0 { file.n_pages() * PAGE } else { n };
            self.fetch(file, pages(offset, n));
        }
    }

    /// Data has been got at in another way, which is not slowed.
    pub fn unseen(&self, fd: c_int) {
        if self.slow_file(fd).is_some() {
            self.shared.count(Count::Unseen, 1);
        }
    }

    /// Pages to fetch beyond those that are read: none where a program jumps, where it reads again
    /// what it has, or where half of them have been asked for.
    fn ahead(&self, fd: c_int, pages: &Range<u64>, file: &SlowFile) -> u64 {
        let Some(behind) = BEHIND.get(fd as usize) else {
            return 0;
        };
        let expected = behind.swap(pages.end, Relaxed);
        // A read that begins amid a page finds that page's beginning here.
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

    /// Ask for those of the pages that nobody asked for.
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

    /// Ask one server for pages of one stripe, which come one after another.
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

    /// Wait for what is done one after another for a file.
    fn ask_for_name(&self, file: &SlowFile, cost: u64) {
        let end = self.shared.serve(Server::Names(file.number()), cost);
        wait_until(self.felt(end + self.settings.latency));
    }

    /// When this process sees what others would see at `moment`.
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
