//! Communicator whose ranks are threads.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Barrier, Mutex};

use crate::{Communicator, Reduce};
use paceline_formats::error::{Error, Result};
use paceline_formats::os_calls::write_all_at;

/// Messages between ranks: for each sending rank, the bytes for each receiving rank.
struct Table {
    barrier: Barrier,
    posts: Vec<Mutex<Vec<Vec<u8>>>>,
}

/// Communicator of one rank, which is a thread.
struct Thread<'a> {
    table: &'a Table,
    rank: usize,
    to: Vec<Sender<Vec<u8>>>,
    from: Vec<Mutex<Receiver<Vec<u8>>>>,
}

/// Call a function on `size` ranks at the same time, and return the result of each rank.
pub fn on_ranks<T: Send>(size: usize, function: impl Fn(&dyn Communicator) -> T + Sync) -> Vec<T> {
    let table = Table {
        barrier: Barrier::new(size),
        posts: (0..size).map(|_| Mutex::default()).collect(),
    };
    let mut to: Vec<Vec<_>> = (0..size).map(|_| Vec::new()).collect();
    let mut from: Vec<Vec<_>> = (0..size).map(|_| Vec::new()).collect();
    for sender in &mut to {
        for receiver in &mut from {
            let (send, receive) = channel();
            sender.push(send);
            receiver.push(Mutex::new(receive));
        }
    }
    let ends = to.into_iter().zip(from).enumerate();
    let threads = ends.map(|(rank, (to, from))| Thread {
        table: &table,
        rank,
        to,
        from,
    });
    let threads: Vec<_> = threads.collect();
    std::thread::scope(|scope| {
        let run = |thread| {
            let function = &function;
            scope.spawn(move || function(&thread))
        };
        let running: Vec<_> = threads.into_iter().map(run).collect();
        let joined = running.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    })
}

impl Thread<'_> {
    /// Send bytes to each rank, and return the bytes that each rank sent to this rank.
    fn swap(&self, mine: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        *self.table.posts[self.rank].lock().unwrap() = mine;
        self.table.barrier.wait();
        let posts = self.table.posts.iter();
        let taken = posts.map(|post| std::mem::take(&mut post.lock().unwrap()[self.rank]));
        let taken = taken.collect();
        self.table.barrier.wait();
        taken
    }

    /// Send numbers to all ranks, and return the numbers of each rank.
    fn all_numbers(&self, numbers: &[u64]) -> Vec<Vec<u64>> {
        let bytes = bytemuck::cast_slice(numbers).to_vec();
        let all = self.swap(vec![bytes; self.size()]);
        let numbers = |bytes: &Vec<u8>| {
            let (numbers, _) = bytes.as_chunks();
            numbers
                .iter()
                .map(|&number| u64::from_ne_bytes(number))
                .collect()
        };
        all.iter().map(numbers).collect()
    }
}

impl Communicator for Thread<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.table.posts.len()
    }

    fn all_to_all(&self, numbers: &[u64]) -> Result<Vec<u64>> {
        assert_eq!(numbers.len(), self.size());
        let all = self.all_numbers(numbers);
        Ok(all.iter().map(|numbers| numbers[self.rank]).collect())
    }

    fn exchange(
        &self,
        mut send: &[u8],
        send_counts: &[u64],
        mut receive: &mut [u8],
        receive_counts: &[u64],
    ) -> Result<()> {
        let take = |&count: &u64| send.split_off(..count as usize).unwrap().to_vec();
        let mine = send_counts.iter().map(take).collect();
        assert!(send.is_empty());
        for (bytes, &count) in self.swap(mine).iter().zip(receive_counts) {
            assert_eq!(bytes.len() as u64, count);
            receive
                .split_off_mut(..bytes.len())
                .unwrap()
                .copy_from_slice(bytes);
        }
        assert!(receive.is_empty());
        Ok(())
    }

    fn all_reduce(&self, values: &mut [u64], how: Reduce) -> Result<()> {
        let all = self.all_numbers(values);
        for (k, value) in values.iter_mut().enumerate() {
            let column = all.iter().map(|values| values[k]);
            *value = match how {
                Reduce::Sum => column.fold(0, u64::wrapping_add),
                Reduce::Max => column.max().unwrap(),
                Reduce::Min => column.min().unwrap(),
            };
        }
        Ok(())
    }

    fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(self.swap(vec![bytes.to_vec(); self.size()]))
    }

    fn send(&self, to: usize, bytes: &[u8]) -> Result<()> {
        self.to[to].send(bytes.to_vec()).unwrap();
        Ok(())
    }

    fn receive(&self, from: usize, bytes: &mut [u8]) -> Result<()> {
        let received = self.from[from].lock().unwrap().recv().unwrap();
        bytes.copy_from_slice(&received);
        Ok(())
    }

    fn write_at(&self, path: &Path, offsets: &[u64], size: usize, bytes: &[u8]) -> Result<()> {
        self.table.barrier.wait();
        let refused = |source| Error::io(path, "cannot write", source);
        let file = OpenOptions::new().write(true).open(path).map_err(refused)?;
        for (record, &offset) in bytes.chunks_exact(size).zip(offsets) {
            write_all_at(&file, record, offset).map_err(refused)?;
        }
        Ok(())
    }
}
