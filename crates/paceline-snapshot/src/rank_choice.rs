//! Choice of the ranks that write and read.

use std::collections::HashMap;
use std::hash::Hash;

/// Minimum number of bytes per frame and writer. On two cores, 8 writers among 8 ranks took 0.56 of
/// the time of one writer for a CONFIG of 16 MiB, and 0.74 for 4 MiB, as 4 writers did. For 1 MiB
/// and less, the number of writers does not matter.
pub const WRITER_BYTES: u64 = 1 << 20;

/// Choose `n` ranks, spread evenly over the nodes and, on each node, over its ranks. `nodes`
/// identifies the node of each rank.
pub fn spread<T: Eq + Hash>(nodes: &[T], n: usize) -> Vec<usize> {
    let mut numbers: HashMap<&T, usize> = HashMap::new();
    let mut by_node: Vec<Vec<usize>> = Vec::new();
    for (rank, node) in nodes.iter().enumerate() {
        let number = *numbers.entry(node).or_insert_with(|| {
            by_node.push(Vec::new());
            by_node.len() - 1
        });
        by_node[number].push(rank);
    }
    let mut shares = vec![0; by_node.len()];
    let mut left = n.min(nodes.len());
    while left > 0 {
        for (share, ranks) in shares.iter_mut().zip(&by_node) {
            if left > 0 && *share < ranks.len() {
                *share += 1;
                left -= 1;
            }
        }
    }
    let chosen = by_node.iter().zip(shares).flat_map(|(ranks, share)| {
        (0..share).map(move |k| ranks[(k as u128 * ranks.len() as u128 / share as u128) as usize])
    });
    let mut chosen: Vec<usize> = chosen.collect();
    chosen.sort_unstable();
    chosen
}

/// Choose the writing ranks by default, for frames of `n_bytes` bytes.
///
/// For P ranks, their number is the largest power of two that does not exceed min(P, 8 √P). (In
/// DL_POLY_5, this number must also divide P, because all writers serve the same number of ranks.)
/// Small frames have fewer writers, since many small pieces take longer to send and to write than a
/// few large ones.
pub fn choose_writers<T: Eq + Hash>(nodes: &[T], n_bytes: u64) -> Vec<usize> {
    let n_ranks = nodes.len();
    let most = (8.0 * (n_ranks as f64).sqrt()) as usize;
    let by_size = usize::try_from(n_bytes / WRITER_BYTES).unwrap_or(usize::MAX);
    let most = most.min(n_ranks).min(by_size.max(1)).max(1);
    spread(nodes, 1 << most.ilog2())
}

/// Choose the reading ranks. By default, as in DL_POLY_5, their number is the largest power of two
/// that divides the number of ranks P and is at most 2 √P.
///
/// # Errors
/// Sentence about an impossible number of readers.
pub fn choose_readers<T: Eq + Hash>(nodes: &[T], n: Option<usize>) -> Result<Vec<usize>, String> {
    let n_ranks = nodes.len();
    let n = n.unwrap_or_else(|| {
        let mut n = 1;
        while n_ranks.is_multiple_of(2 * n) && n * n <= n_ranks {
            n *= 2;
        }
        n
    });
    match (1..=n_ranks).contains(&n) {
        true => Ok(spread(nodes, n)),
        false => Err(format!("expected from 1 to {n_ranks} readers, found {n}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_spread_over_nodes() {
        assert_eq!(spread(&["a", "a", "a", "b"], 3), [0, 1, 3]);
        assert_eq!(spread(&["a"; 6], 4), [0, 1, 3, 4]);
        let two = [["one"; 6].as_slice(), &["other"; 2]].concat();
        assert_eq!(spread(&two, 5), [0, 2, 4, 6, 7]);
    }

    #[test]
    fn few_write_small_frames() {
        assert_eq!(choose_writers(&["a"; 16], 3 * WRITER_BYTES), [0, 8]);
        assert_eq!(choose_writers(&["a"; 3], 100), [0]);
        assert_eq!(choose_writers(&["a"; 256], 10_000_000_000).len(), 128);
    }

    #[test]
    fn readers_divide_the_ranks() {
        let n_readers = |n| choose_readers(&vec![0; n], None).unwrap().len();
        assert_eq!([1, 2, 6, 16, 64, 1000].map(n_readers), [1, 2, 2, 8, 16, 8]);
        assert!(choose_readers(&[0; 4], Some(5)).is_err());
        assert!(choose_readers(&[0; 4], Some(0)).is_err());
    }
}
