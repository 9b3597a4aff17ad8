//! Communicator between ranks, implemented in Python.

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyNone, PyString};
use pyo3::{PyTypeInfo, ffi};

use super::types::{Array1, INT, Number, callable, from_python, protocol};

use paceline_formats::error::{self, Error};
use paceline_snapshot::{Communicator, Reduce};

/// Object of the class `paceline.backends.mpi.comm.Comm`.
pub(super) struct PyCommunicator {
    comm: Py<PyAny>,
    rank: usize,
    size: usize,
    /// Exception of the first call that failed.
    raised: Mutex<Option<PyErr>>,
}

from_python! {
    [] PyCommunicator,
    protocol! {
        "_Communicator",
        "Communicator of ranks, as `paceline.backends.mpi.comm` has it.",
        rank: INT,
        size: INT,
        all_to_all: callable!([u64::ARRAY] -> u64::ARRAY),
        exchange: callable!(
            [PyMemoryView::TYPE_HINT, u64::ARRAY, PyMemoryView::TYPE_HINT, u64::ARRAY]
                -> PyNone::TYPE_HINT
        ),
        all_reduce: callable!([u64::ARRAY, PyString::TYPE_HINT] -> PyNone::TYPE_HINT),
        all_gather: callable!([PyBytes::TYPE_HINT] -> <Vec<&[u8]> as IntoPyObject<'_>>::OUTPUT_TYPE),
        send: callable!([INT, PyMemoryView::TYPE_HINT] -> PyNone::TYPE_HINT),
        receive: callable!([INT, PyMemoryView::TYPE_HINT] -> PyNone::TYPE_HINT),
        write_at: callable!(
            [PyString::TYPE_HINT, u64::ARRAY, INT, PyMemoryView::TYPE_HINT] -> PyNone::TYPE_HINT
        ),
    },
    |comm| {
        Ok(PyCommunicator {
            rank: comm.getattr("rank")?.extract()?,
            size: comm.getattr("size")?.extract()?,
            comm: comm.to_owned().unbind(),
            raised: Mutex::new(None),
        })
    }
}

impl PyCommunicator {
    /// Return the exception of the first call that failed, if any.
    pub(super) fn raised(self) -> Option<PyErr> {
        self.raised
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(
        &self,
        function: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<T>,
    ) -> error::Result<T> {
        Python::attach(|py| function(self.comm.bind(py))).map_err(|raised| {
            let mut first = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(raised);
            Error::Interrupted
        })
    }
}

impl Communicator for PyCommunicator {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_to_all(&self, numbers: &[u64]) -> error::Result<Vec<u64>> {
        self.call(|comm| {
            let numbers = PyArray1::from_slice(comm.py(), numbers);
            let received = comm.call_method1("all_to_all", (numbers,))?;
            let received: Array1<'_, u64> = received.extract()?;
            Ok(received.to_vec())
        })
    }

    fn exchange(
        &self,
        send: &[u8],
        send_counts: &[u64],
        receive: &mut [u8],
        receive_counts: &[u64],
    ) -> error::Result<()> {
        self.call(|comm| {
            let counts = |counts| PyArray1::from_slice(comm.py(), counts);
            let (send_counts, receive_counts) = (counts(send_counts), counts(receive_counts));
            lend(comm.py(), send, |send| {
                lend_mut(comm.py(), receive, |receive| {
                    let arguments = (send, send_counts, receive, receive_counts);
                    comm.call_method1("exchange", arguments)?;
                    Ok(())
                })
            })
        })
    }

    fn all_reduce(&self, values: &mut [u64], how: Reduce) -> error::Result<()> {
        let how = match how {
            Reduce::Sum => "sum",
            Reduce::Max => "max",
            Reduce::Min => "min",
        };
        self.call(|comm| {
            let array = PyArray1::from_slice(comm.py(), values);
            comm.call_method1("all_reduce", (&array, how))?;
            values.copy_from_slice(array.readonly().as_slice()?);
            Ok(())
        })
    }

    fn all_gather(&self, bytes: &[u8]) -> error::Result<Vec<Vec<u8>>> {
        self.call(|comm| {
            let bytes = PyBytes::new(comm.py(), bytes);
            comm.call_method1("all_gather", (bytes,))?.extract()
        })
    }

    fn send(&self, to: usize, bytes: &[u8]) -> error::Result<()> {
        self.call(|comm| {
            lend(comm.py(), bytes, |bytes| {
                comm.call_method1("send", (to, bytes)).map(drop)
            })
        })
    }

    fn receive(&self, from: usize, bytes: &mut [u8]) -> error::Result<()> {
        self.call(|comm| {
            lend_mut(comm.py(), bytes, |bytes| {
                comm.call_method1("receive", (from, bytes)).map(drop)
            })
        })
    }

    fn write_at(
        &self,
        path: &Path,
        offsets: &[u64],
        size: usize,
        bytes: &[u8],
    ) -> error::Result<()> {
        let written = Python::attach(|py| {
            let offsets = PyArray1::from_slice(py, offsets);
            lend(py, bytes, |bytes| {
                let arguments = (path, offsets, size, bytes);
                self.comm.bind(py).call_method1("write_at", arguments)?;
                Ok(())
            })
        });
        written.map_err(|raised| {
            let source = std::io::Error::other(raised.to_string());
            Error::io(path, "cannot write through MPI-IO", source)
        })
    }
}

/// Give Python read access to bytes while a function runs.
fn lend<T>(
    py: Python<'_>,
    bytes: &[u8],
    function: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<T> {
    // Python can only read through a view created with PyBUF_READ.
    view(
        py,
        bytes.as_ptr().cast_mut(),
        bytes.len(),
        ffi::PyBUF_READ,
        function,
    )
}

/// Give Python write access to bytes while a function runs.
fn lend_mut<T>(
    py: Python<'_>,
    bytes: &mut [u8],
    function: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<T> {
    view(
        py,
        bytes.as_mut_ptr(),
        bytes.len(),
        ffi::PyBUF_WRITE,
        function,
    )
}

/// Call a function with a memoryview of bytes that the caller has borrowed. The view is writable if
/// `access` is PyBUF_WRITE; the borrow must then be mutable.
///
/// MPI thus sends atoms directly from packed memory, and receives them into the memory from which
/// they are then read. Copies to and from Python objects took 2 % of the time of a frame, and twice
/// the memory.
fn view<T>(
    py: Python<'_>,
    start: *mut u8,
    len: usize,
    access: c_int,
    function: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<T> {
    // SAFETY: `start` and `len` describe a slice that the caller has borrowed for longer than this
    // call, mutably if `access` is PyBUF_WRITE. The length of a slice always fits into isize.
    // Python cannot access the memory after this call: the view is released below; if anything
    // still uses its memory, the release fails, and the process aborts.
    let view = unsafe {
        let view = ffi::PyMemoryView_FromMemory(start.cast::<c_char>(), len as isize, access);
        Bound::from_owned_ptr_or_err(py, view)?
    };
    let value = function(&view);
    if view.call_method0("release").is_err() {
        eprintln!("paceline: error: memory that was lent is still in use");
        std::process::abort();
    }
    value
}
