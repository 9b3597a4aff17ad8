//! Threads, clients and request limits of this process.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::pin::pin;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use object_store::ObjectStore;
use object_store::list::PaginatedListStore;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::address::Address;
use crate::build_client::{self, Client};
use crate::credentials::settings;
use crate::latency_and_bandwidth::{
    Estimate, LONG_REQUESTS, Pace, SHARERS, SHORT_REQUESTS, sharers,
};
use paceline_formats::error::{Error, Result};
use paceline_formats::source::Requests;

/// Maximum size of a short request, bytes.
const SHORT: u64 = 256 << 10;
/// Maximum number of bytes that are kept for readers.
pub(crate) const KEPT_BYTES: usize = 128 << 20;
/// Maximum number of objects whose beginnings are kept after they were closed.
const FRONTS: usize = 64;
/// Number of threads that receive and decrypt responses.
const THREADS: usize = 2;
/// Time between two checks whether the user wants to stop.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

static STOPPED: OnceLock<fn() -> bool> = OnceLock::new();

/// Set the function that is called from time to time while a caller waits for bytes. If it returns
/// true, the wait ends with [`Error::Interrupted`].
pub fn on_wait(stopped: fn() -> bool) {
    let _ = STOPPED.set(stopped);
}

/// # Errors
/// [`Error::Interrupted`] if the user wants to stop.
pub(crate) fn check_stopped() -> Result<()> {
    match STOPPED.get().is_some_and(|stopped| stopped()) {
        true => Err(Error::Interrupted),
        false => Ok(()),
    }
}

/// Await a request. A panic in its client becomes an error of the request.
pub(crate) async fn caught<T>(
    address: &Address,
    request: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut request = pin!(request);
    poll_fn(|context| {
        let polled = panic::catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(context)));
        polled.unwrap_or_else(|_| {
            let error = io::Error::other(
                "the client of the store ended unexpectedly, for the reason above: check the settings \
                 of the store in the environment, and report it as an error of paceline",
            );
            Poll::Ready(Err(Error::io(address.path(), "cannot read", error)))
        })
    })
    .await
}

/// Client for one bucket or host, and its measured latency and bandwidth.
pub(crate) struct Store {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) lists: Option<Arc<dyn PaginatedListStore>>,
    pub(crate) pace: Pace,
}

/// Object that keeps bytes for readers.
pub(crate) trait KeepsBytes: Send + Sync {
    /// Drop bytes that are no longer needed until there is space for `len` more; return true if
    /// there is.
    fn drop_bytes(&self, len: usize) -> bool;
}

/// Latency and bandwidth of stores that another process has measured, each with the store's number.
static ESTIMATES: Mutex<Vec<(u64, Estimate)>> = Mutex::new(Vec::new());

/// Return the number that identifies a store in estimates that processes exchange.
fn number_of(client_key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    client_key.hash(&mut hasher);
    hasher.finish()
}

/// Return the measured latency and bandwidth of each store, with the number of the store.
pub fn estimates() -> Vec<(u64, Estimate)> {
    let process = CURRENT.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or comes from `Box::leak`, so that it stays valid.
    let Some(process) = (unsafe { process.as_ref() }).filter(|one| one.is_current()) else {
        return Vec::new();
    };
    let stores = process
        .stores
        .lock()
        .unwrap_or_else(|lock| lock.into_inner());
    stores
        .iter()
        .filter_map(|((key, _), store)| Some((number_of(key), store.pace.estimate()?)))
        .collect()
}

/// Set the number of processes that share this machine's limit of requests in flight. Each process
/// gets an equal share, but at least one long and one short request. `estimates` contains the
/// latency and bandwidth of stores that another process has measured; stores that are opened later
/// begin with them.
pub fn share_requests(n_processes: usize, estimates: Vec<(u64, Estimate)>) {
    SHARERS.store(n_processes.max(1), Ordering::Relaxed);
    *ESTIMATES.lock().unwrap_or_else(|lock| lock.into_inner()) = estimates;
    let process = CURRENT.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or comes from `Box::leak`, so that it stays valid.
    if let Some(process) = unsafe { process.as_ref() }
        && process.is_current()
    {
        process.long.adjust(&process.runtime);
        process.short.adjust(&process.runtime);
    }
}

/// Limit of the number of requests, long or short, that this process has in flight.
struct Limit {
    permits: Semaphore,
    /// Maximum number of requests that all processes of this machine may have in flight.
    of_machine: usize,
    /// Number of permits after all permits in use are returned.
    now: Mutex<usize>,
}

impl Limit {
    fn new(of_machine: usize) -> Self {
        let now = Limit::share(of_machine);
        Limit {
            permits: Semaphore::new(now),
            of_machine,
            now: Mutex::new(now),
        }
    }

    fn share(of_machine: usize) -> usize {
        (of_machine / sharers()).max(1)
    }

    /// Add or remove permits if the number of processes has changed.
    fn adjust(&'static self, runtime: &Runtime) {
        let mut now = self.now.lock().unwrap_or_else(|lock| lock.into_inner());
        let wanted = Limit::share(self.of_machine);
        if wanted > *now {
            self.permits.add_permits(wanted - *now);
        } else if wanted < *now {
            let surplus = *now - wanted;
            runtime.spawn(async move {
                for _ in 0..surplus {
                    if let Ok(permit) = self.permits.acquire().await {
                        permit.forget();
                    }
                }
            });
        }
        *now = wanted;
    }
}

pub(crate) struct Process {
    pid: u32,
    pub(crate) runtime: Runtime,
    /// Clients, by bucket or host and by the settings with which they were created.
    stores: Mutex<HashMap<(String, u64), Arc<Store>>>,
    /// List of open objects, and the length at which closed objects are removed from the list.
    keepers: Mutex<(Vec<Weak<dyn KeepsBytes>>, usize)>,
    /// Versions of objects that readers of this process share.
    shared: Mutex<HashMap<String, Weak<dyn Any + Send + Sync>>>,
    /// Beginnings of the versions of objects that were opened last, in the order of opening.
    fronts: Mutex<VecDeque<(String, Bytes)>>,
    long: Limit,
    short: Limit,
    /// Number of bytes of all objects that were requested and are still kept.
    pub(crate) kept: AtomicUsize,
    /// Counts of the requests for all objects.
    pub(crate) requests: Mutex<Requests>,
}

/// Return counts of the requests that this process has sent.
pub fn requests_sent() -> Requests {
    let process = CURRENT.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or comes from `Box::leak`, so that it stays valid.
    match unsafe { process.as_ref() } {
        Some(process) if process.is_current() => *process
            .requests
            .lock()
            .unwrap_or_else(|lock| lock.into_inner()),
        _ => Requests::default(),
    }
}

/// Threads of this process. The threads of a parent process do not run in a forked process, which
/// starts its own. The data of the parent's threads are never dropped.
static CURRENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

impl Process {
    /// Return the threads of this process; start them if there are none.
    pub(crate) fn current() -> Result<&'static Process> {
        let pid = std::process::id();
        loop {
            let found = CURRENT.load(Ordering::Acquire);
            // SAFETY: the pointer is null, or comes from `Box::leak`, so that it stays valid.
            if let Some(process) = unsafe { found.as_ref() }
                && process.pid == pid
            {
                return Ok(process);
            }
            let made: &'static mut Process = Box::leak(Box::new(Process::start(pid)?));
            let made = ptr::from_mut(made);
            let swapped =
                CURRENT.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire);
            if swapped.is_err() {
                // SAFETY: `made` comes from `Box::leak` above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
            }
        }
    }

    fn start(pid: u32) -> Result<Process> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("paceline-store")
            .enable_all()
            .build()
            .map_err(|error| {
                Error::io(
                    Path::new("requests"),
                    "cannot start threads for requests",
                    error,
                )
            })?;
        Ok(Process {
            pid,
            runtime,
            stores: Mutex::default(),
            keepers: Mutex::default(),
            shared: Mutex::default(),
            fronts: Mutex::default(),
            long: Limit::new(LONG_REQUESTS),
            short: Limit::new(SHORT_REQUESTS),
            kept: AtomicUsize::new(0),
            requests: Mutex::default(),
        })
    }

    pub(crate) fn count(&self, requests: &Requests) {
        let mut counted = self
            .requests
            .lock()
            .unwrap_or_else(|lock| lock.into_inner());
        counted.add(requests);
    }

    pub(crate) fn is_current(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Return the client of a bucket or host.
    pub(crate) fn store(&self, address: &Address) -> Result<Arc<Store>> {
        let mut stores = self.stores.lock().unwrap_or_else(|lock| lock.into_inner());
        let key = (address.client_key(), settings());
        if let Some(store) = stores.get(&key) {
            return Ok(Arc::clone(store));
        }
        let Client { objects, lists } = build_client::connect(address)?;
        let estimates = ESTIMATES.lock().unwrap_or_else(|lock| lock.into_inner());
        let number = number_of(&key.0);
        let known = estimates.iter().find(|(one, _)| *one == number);
        let store = Arc::new(Store {
            objects,
            lists,
            pace: Pace::of(known.map(|(_, estimate)| *estimate)),
        });
        stores.insert(key, Arc::clone(&store));
        Ok(store)
    }

    /// Add an object that was opened to the list of open objects.
    pub(crate) fn add(&self, object: Weak<dyn KeepsBytes>) {
        let mut keepers = self.keepers.lock().unwrap_or_else(|lock| lock.into_inner());
        let (open, most) = &mut *keepers;
        if open.len() >= *most {
            open.retain(|one| one.strong_count() > 0);
            *most = 2 * open.len() + 64;
        }
        open.push(object);
    }

    /// Drop bytes of other objects than this one until there is space for `len` more; return true
    /// if there is.
    pub(crate) fn drop_others<T>(&self, than: &T, len: usize) -> bool {
        let open: Vec<_> = {
            let keepers = self.keepers.lock().unwrap_or_else(|lock| lock.into_inner());
            keepers.0.iter().filter_map(Weak::upgrade).collect()
        };
        let mut others = open
            .iter()
            .filter(|one| !ptr::addr_eq(Arc::as_ptr(one), than));
        others.any(|one| one.drop_bytes(len))
    }

    /// Return the value that readers of this process share under a key. `value` is used unless
    /// there is an earlier one.
    pub(crate) fn share<T: Any + Send + Sync>(&self, key: String, value: Arc<T>) -> Arc<T> {
        let mut shared = self.shared.lock().unwrap_or_else(|lock| lock.into_inner());
        let known = shared.get(&key).and_then(Weak::upgrade);
        if let Some(known) = known.and_then(|known| known.downcast().ok()) {
            return known;
        }
        if shared.len() == shared.capacity() {
            shared.retain(|_, known| known.strong_count() > 0);
        }
        let any: Arc<dyn Any + Send + Sync> = value.clone();
        shared.insert(key, Arc::downgrade(&any));
        value
    }

    /// Keep the beginning of a version of an object.
    pub(crate) fn keep_front(&self, key: String, front: Bytes) {
        let mut fronts = self.fronts.lock().unwrap_or_else(|lock| lock.into_inner());
        fronts.retain(|(known, _)| *known != key);
        if fronts.len() >= FRONTS {
            fronts.pop_front();
        }
        fronts.push_back((key, front));
    }

    /// Return the beginning of a version of an object, if it is kept.
    pub(crate) fn front(&self, key: &str) -> Option<Bytes> {
        let fronts = self.fronts.lock().unwrap_or_else(|lock| lock.into_inner());
        let found = fronts.iter().find(|(known, _)| known == key);
        found.map(|(_, front)| front.clone())
    }

    /// Return the semaphore that limits the number of simultaneous requests of this size (`len`
    /// bytes).
    pub(crate) fn permits(&self, len: u64) -> &Semaphore {
        let limit = if len <= SHORT {
            &self.short
        } else {
            &self.long
        };
        &limit.permits
    }

    /// Start a request in the threads of this process, and return without waiting for its result.
    pub(crate) fn send<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Started<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let task = self.runtime.spawn(async move {
            let _ = sender.send(request.await);
        });
        Started {
            receiver,
            task: task.abort_handle(),
        }
    }
}

/// Request that was sent. Dropping this value aborts the request if it is still running.
pub(crate) struct Started<T> {
    receiver: Receiver<Result<T>>,
    task: AbortHandle,
}

impl<T> Started<T> {
    /// Wait for the end of the request, and return its result.
    pub(crate) fn wait(self) -> Result<T> {
        loop {
            match self.receiver.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => check_stopped()?,
                Err(RecvTimeoutError::Disconnected) => {
                    let error = io::Error::other("the thread of requests ended");
                    return Err(Error::io(Path::new("requests"), "cannot wait", error));
                }
            }
        }
    }
}

impl<T> Drop for Started<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_the_request() {
        let address = Address::parse(Path::new("s3://b/md.xtc"));
        let address = address.unwrap().unwrap();
        let process = Process::current().unwrap();
        let started = process.send(async move {
            caught::<()>(&address, async { panic!("a panic that is expected") }).await
        });
        let message = started.wait().unwrap_err().to_string();
        assert!(message.contains("s3://b/md.xtc: cannot read"), "{message}");
    }
}
