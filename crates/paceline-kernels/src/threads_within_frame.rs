//! Division of the work on one frame into parts, which several threads compute.
//!
//! A kernel concatenates the results of the parts in their order, or adds them up if they are
//! integers. The result therefore has the same bits for any division and any number of threads.

use std::cell::Cell;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread::{self, Builder};

/// Maximum number of parts of a frame. With 8 threads, waiting for the last part then takes a few
/// per cent of the time.
const MOST_PARTS: usize = 128;

/// Minimum number of items of a part, if an item takes little time.
pub(crate) const MANY: usize = 8192;

thread_local! {
    static ALLOWED: Cell<usize> = const { Cell::new(1) };
    static USED: Cell<usize> = const { Cell::new(1) };
}

/// Allow the kernels that this thread calls to use `n` threads per frame, including this thread.
pub fn allow_threads(n: usize) {
    ALLOWED.set(n.max(1));
}

/// Return the largest number of threads per frame that kernels called by this thread have used
/// since the last call of `used_threads`.
pub fn used_threads() -> usize {
    USED.replace(1)
}

/// Return the number of items in each part of `n` items; the last part may have fewer. With one
/// thread, this is `n`, otherwise at least `least`. Results must not depend on this number.
pub fn part_len(n: usize, least: usize) -> usize {
    match ALLOWED.get() {
        1 => n.max(1),
        _ => n.div_ceil(MOST_PARTS).max(least),
    }
}

/// Divide `0..n` into ranges of length `len`; the last range may be shorter.
pub(crate) fn ranges(n: usize, len: usize) -> impl ExactSizeIterator<Item = Range<usize>> + Send {
    (0..n.div_ceil(len)).map(move |part| part * len..n.min((part + 1) * len))
}

/// Compute parts on the allowed threads; a thread that is idle computes the next part. The calling
/// thread uses the scratch memory `own`; each other thread creates its own with `scratch`. Return
/// the results in the order of parts, and the scratch memory of the other threads.
pub(crate) fn compute<P: Send, S: Send, T: Send>(
    parts: impl ExactSizeIterator<Item = P> + Send,
    own: &mut S,
    scratch: impl Fn() -> S + Sync,
    task: impl Fn(&mut S, P) -> T + Sync,
) -> (Vec<T>, Vec<S>) {
    let n_threads = ALLOWED.get().min(parts.len());
    if n_threads < 2 {
        return (parts.map(|part| task(own, part)).collect(), Vec::new());
    }
    USED.set(USED.get().max(n_threads));
    let parts = Mutex::new(parts.enumerate());
    let next = || parts.lock().ok()?.next();
    let work = |scratch: &mut S| {
        let mut found = Vec::new();
        while let Some((number, part)) = next() {
            found.push((number, task(scratch, part)));
        }
        found
    };
    let (work, scratch) = (&work, &scratch);
    thread::scope(|scope| {
        let start = |_| {
            let work = move || {
                let mut own = scratch();
                (work(&mut own), own)
            };
            // If the system refuses to start a thread, the other threads compute its parts.
            Builder::new().spawn_scoped(scope, work).ok()
        };
        let others: Vec<_> = (1..n_threads).filter_map(start).collect();
        let mut found = work(own);
        let mut scratches = Vec::new();
        for other in others {
            let (some, scratch) = other.join().unwrap_or_else(|panic| resume_unwind(panic));
            found.extend(some);
            scratches.push(scratch);
        }
        found.sort_unstable_by_key(|(number, _)| *number);
        (found.into_iter().map(|(_, one)| one).collect(), scratches)
    })
}

/// Compute parts that need no scratch memory. Return the results in the order of parts.
pub fn compute_parts<P: Send, T: Send>(
    parts: impl ExactSizeIterator<Item = P> + Send,
    task: impl Fn(P) -> T + Sync,
) -> Vec<T> {
    compute(parts, &mut (), || (), |(), part| task(part)).0
}

/// Change a slice in parts of at least `least` items. `task` gets each part and the index of its
/// first item. Return the results of the parts.
pub(crate) fn change<X: Send, T: Send>(
    items: &mut [X],
    least: usize,
    task: impl Fn(usize, &mut [X]) -> T + Sync,
) -> Vec<T> {
    let len = part_len(items.len(), least);
    let parts = items.chunks_mut(len).enumerate();
    compute_parts(parts, |(number, part)| task(len * number, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_in_order() {
        for n_threads in [1, 2] {
            allow_threads(n_threads);
            for (n, least) in [(0, 1), (1, 10), (1000, 7), (1 << 20, 1), (99, 33)] {
                let len = part_len(n, least);
                let parts: Vec<_> = ranges(n, len).collect();
                assert!(parts.len() <= if n_threads == 1 { 1 } else { MOST_PARTS });
                let all_but_last = &parts[..parts.len().saturating_sub(1)];
                assert!(
                    all_but_last
                        .iter()
                        .all(|part| part.len() == len && len >= least)
                );
                assert!(parts.into_iter().flatten().eq(0..n));
            }
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_results_in_order() {
        for n_threads in [1, 2, 3, 5, 200] {
            allow_threads(n_threads);
            let (squares, sums) = compute(
                0..40_usize,
                &mut 0,
                || 0,
                |sum, k| {
                    *sum += 1;
                    k * k
                },
            );
            assert!(squares.into_iter().eq((0..40).map(|k| k * k)));
            assert_eq!(sums.len(), n_threads.min(40) - 1);
            assert_eq!(used_threads(), n_threads.min(40));
            let mut items = vec![0; 1000];
            let lengths = change(&mut items, 64, |first, items| {
                items.iter_mut().zip(first..).for_each(|(to, k)| *to = k);
                items.len()
            });
            assert_eq!(lengths.len(), if n_threads == 1 { 1 } else { 16 });
            assert!(items.into_iter().eq(0..1000));
        }
    }

    #[test]
    #[should_panic(expected = "part 7")]
    fn a_panic_of_a_part_is_raised_again() {
        allow_threads(3);
        compute(0..9, &mut (), || (), |(), k| assert!(k != 7, "part 7"));
    }
}
