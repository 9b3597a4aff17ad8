//! HDF5's C library, which is loaded when a program first opens an H5MD file.
//!
//! Simulation programs often contain HDF5, and two versions of HDF5 cannot share a process. The
//! program's own HDF5 is therefore preferred. Otherwise the library is loaded by the name in
//! `PACELINE_HDF5`, or by its usual names. All calls are made under one lock, since most builds of
//! HDF5 allow one thread only.

use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::crash_safe::register_driver;

/// HDF5's identifier of an object, in version 1.10 and later.
pub type Id = i64;
/// Oldest version of HDF5 that has all functions of [`Functions`].
const OLDEST: [c_uint; 3] = [1, 10, 5];
/// Environment variable that names the library.
pub const VARIABLE: &str = "PACELINE_HDF5";
/// Names of the library without a version, and with versions on Linux, newest first.
const NAMES: [&str; 2] = ["libhdf5", "libhdf5_serial"];
const VERSIONS: [&str; 5] = ["", ".320", ".310", ".200", ".103"];

/// Function that HDF5 calls with each entry of its list of errors.
type Walk = unsafe extern "C" fn(c_uint, *const ErrorEntry, *mut c_void) -> c_int;
/// Function that prints errors.
pub type Print = Option<unsafe extern "C" fn(Id, *mut c_void) -> c_int>;

/// `H5E_error2_t`.
#[repr(C)]
pub struct ErrorEntry {
    class: Id,
    major: Id,
    minor: Id,
    line: c_uint,
    function: *const c_char,
    file: *const c_char,
    description: *const c_char,
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        /// Functions of HDF5, by their names in C.
        #[expect(non_snake_case, reason = "names of HDF5")]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// Find all functions. The error is the name of a missing function.
            fn find(symbol: &dyn Fn(&str) -> *mut c_void) -> Result<Self, String> {
                Ok(Functions {
                    $($name: {
                        let found = symbol(stringify!($name));
                        if found.is_null() {
                            return Err(stringify!($name).into());
                        }
                        // SAFETY: HDF5 exports a function of this name, whose type has been the one
                        // above since version 1.10, or the library would call it otherwise.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) -> $result,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    H5open() -> c_int;
    H5free_memory(*mut c_void) -> c_int;
    H5Eget_auto2(Id, *mut Print, *mut *mut c_void) -> c_int;
    H5Eset_auto2(Id, Print, *mut c_void) -> c_int;
    H5Ewalk2(Id, c_int, Walk, *mut c_void) -> c_int;
    H5Idec_ref(Id) -> c_int;
    H5FDregister(*const c_void) -> Id;
    H5Pcreate(Id) -> Id;
    H5Pset_driver(Id, Id, *const c_void) -> c_int;
    H5Pset_alignment(Id, u64, u64) -> c_int;
    H5Pget_libver_bounds(Id, *mut c_int, *mut c_int) -> c_int;
    H5Pset_libver_bounds(Id, c_int, c_int) -> c_int;
    H5Pset_obj_track_times(Id, c_uint) -> c_int;
    H5Pset_create_intermediate_group(Id, c_uint) -> c_int;
    H5Pset_chunk(Id, c_int, *const u64) -> c_int;
    H5Pset_shuffle(Id) -> c_int;
    H5Pset_deflate(Id, c_uint) -> c_int;
    H5Pset_alloc_time(Id, c_int) -> c_int;
    H5Pset_fill_time(Id, c_int) -> c_int;
    H5Pget_layout(Id) -> c_int;
    H5Pget_chunk(Id, c_int, *mut u64) -> c_int;
    H5Pget_alloc_time(Id, *mut c_int) -> c_int;
    H5Pget_nfilters(Id) -> c_int;
    H5Pget_external_count(Id) -> c_int;
    H5Fcreate(*const c_char, c_uint, Id, Id) -> Id;
    H5Fopen(*const c_char, c_uint, Id) -> Id;
    H5Fflush(Id, c_int) -> c_int;
    H5Fclose(Id) -> c_int;
    H5Gcreate2(Id, *const c_char, Id, Id, Id) -> Id;
    H5Lexists(Id, *const c_char, Id) -> c_int;
    H5Oopen(Id, *const c_char, Id) -> Id;
    H5Olink(Id, Id, *const c_char, Id, Id) -> c_int;
    H5Oget_info1(Id, *mut c_void) -> c_int;
    H5Screate_simple(c_int, *const u64, *const u64) -> Id;
    H5Sselect_hyperslab(Id, c_int, *const u64, *const u64, *const u64, *const u64) -> c_int;
    H5Sget_simple_extent_ndims(Id) -> c_int;
    H5Sget_simple_extent_dims(Id, *mut u64, *mut u64) -> c_int;
    H5Tcopy(Id) -> Id;
    H5Tset_size(Id, usize) -> c_int;
    H5Tset_cset(Id, c_int) -> c_int;
    H5Tset_strpad(Id, c_int) -> c_int;
    H5Tequal(Id, Id) -> c_int;
    H5Acreate2(Id, *const c_char, Id, Id, Id, Id) -> Id;
    H5Aexists(Id, *const c_char) -> c_int;
    H5Aopen(Id, *const c_char, Id) -> Id;
    H5Aget_space(Id) -> Id;
    H5Awrite(Id, Id, *const c_void) -> c_int;
    H5Aread(Id, Id, *mut c_void) -> c_int;
    H5Dcreate2(Id, *const c_char, Id, Id, Id, Id, Id) -> Id;
    H5Dget_space(Id) -> Id;
    H5Dget_type(Id) -> Id;
    H5Dget_create_plist(Id) -> Id;
    H5Dget_offset(Id) -> u64;
    H5Dget_chunk_info_by_coord(Id, *const u64, *mut c_uint, *mut u64, *mut u64) -> c_int;
    H5Dset_extent(Id, *const u64) -> c_int;
    H5Dread(Id, Id, Id, Id, Id, *mut c_void) -> c_int;
    H5Dwrite(Id, Id, Id, Id, Id, *const c_void) -> c_int;
}

/// Identifiers of types and of classes of property lists. `H5open` creates them.
pub struct Constants {
    pub float32: Id,
    pub float64: Id,
    pub int32: Id,
    pub int64: Id,
    pub string: Id,
    pub file_access: Id,
    pub file_create: Id,
    pub group_create: Id,
    pub link_create: Id,
    pub dataset_create: Id,
}

/// HDF5 as loaded in this process.
pub struct Library {
    pub functions: Functions,
    pub constants: Constants,
    /// Identifier of paceline's file driver.
    pub driver: Id,
}

/// Reason for a failure of HDF5: the name of its function, and its message.
#[derive(Debug)]
pub struct Refusal(pub String);

/// Exclusive access to HDF5 by this thread. Meanwhile, HDF5 prints no errors.
pub struct Hdf5 {
    pub loaded: &'static Library,
    print: (Print, *mut c_void),
    _lock: MutexGuard<'static, ()>,
}

static LIBRARY: OnceLock<Library> = OnceLock::new();
static LOCK: Mutex<()> = Mutex::new(());

impl Hdf5 {
    /// Wait for other threads; load HDF5 unless it is already loaded.
    ///
    /// # Errors
    /// Sentence that says what to set so that HDF5 can be loaded.
    pub fn enter() -> Result<Self, String> {
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let library = match LIBRARY.get() {
            Some(library) => library,
            None => {
                let loaded = Library::load()?;
                LIBRARY.get_or_init(|| loaded)
            }
        };
        let mut print = (None, std::ptr::null_mut());
        // SAFETY: both pointers are of variables that live until the calls return; the function and
        // its data are only given back to HDF5.
        unsafe {
            (library.functions.H5Eget_auto2)(0, &raw mut print.0, &raw mut print.1);
            (library.functions.H5Eset_auto2)(0, None, std::ptr::null_mut());
        }
        Ok(Hdf5 {
            loaded: library,
            print,
            _lock: lock,
        })
    }

    /// Functions of the library.
    pub fn functions(&self) -> &'static Functions {
        &self.loaded.functions
    }

    /// Types and classes of the library.
    pub fn constants(&self) -> &'static Constants {
        &self.loaded.constants
    }

    /// Convert HDF5's last error to a refusal.
    pub fn refusal(&self, function: &str) -> Refusal {
        let mut reason = String::new();
        // SAFETY: the function is called before this one returns, with the pointer to `reason`.
        unsafe { (self.functions().H5Ewalk2)(0, 0, keep_first, (&raw mut reason).cast()) };
        match reason.is_empty() {
            true => Refusal(format!("HDF5's {function} failed")),
            false => Refusal(format!("HDF5's {function} failed: {reason}")),
        }
    }
}

impl Drop for Hdf5 {
    fn drop(&mut self) {
        // SAFETY: the function and its data are those that HDF5 had before.
        unsafe { (self.functions().H5Eset_auto2)(0, self.print.0, self.print.1) };
    }
}

/// Copy the description of the innermost error.
unsafe extern "C" fn keep_first(n: c_uint, entry: *const ErrorEntry, data: *mut c_void) -> c_int {
    // SAFETY: HDF5 gives an entry that is valid during the call, and the data of `refusal`, which
    // nothing else uses meanwhile.
    let (entry, reason) = unsafe { (&*entry, &mut *data.cast::<String>()) };
    if n == 0 && !entry.description.is_null() {
        // SAFETY: not NULL, and HDF5's texts end with a zero byte.
        let text = unsafe { CStr::from_ptr(entry.description) };
        *reason = text.to_string_lossy().into_owned();
    }
    0
}

impl Library {
    /// Find HDF5 in the process, or load it; register the driver.
    fn load() -> Result<Self, String> {
        let handle = match symbol(libc::RTLD_DEFAULT, "H5open").is_null() {
            false => libc::RTLD_DEFAULT,
            true => open_library()?,
        };
        let find = |name: &str| symbol(handle, name);
        let version = version_of(&find)?;
        let written = version.map(|part| part.to_string()).join(".");
        if version < OLDEST {
            let oldest = OLDEST.map(|part| part.to_string()).join(".");
            return Err(format!(
                "H5MD needs HDF5 {oldest} or newer, found {written}; {WHAT_TO_SET}"
            ));
        }
        let functions = Functions::find(&find).map_err(|name| {
            format!("the HDF5 library of version {written} has no {name}; {WHAT_TO_SET}")
        })?;
        // SAFETY: `H5open` has no arguments, and may be called at any time.
        if unsafe { (functions.H5open)() } < 0 {
            return Err("HDF5's H5open failed".into());
        }
        let constants = Constants::find(&find)
            .map_err(|name| format!("the HDF5 library of version {written} has no {name}"))?;
        let driver = register_driver(&functions, version);
        match driver < 0 {
            true => Err(format!(
                "HDF5 {written} has another interface of file drivers than paceline knows; \
                 {WHAT_TO_SET}"
            )),
            false => Ok(Library {
                functions,
                constants,
                driver,
            }),
        }
    }
}

impl Constants {
    /// Read HDF5's variables, after `H5open`. The error is the name of a missing variable.
    fn find(symbol: &dyn Fn(&str) -> *mut c_void) -> Result<Self, String> {
        let value = |name: &str| {
            let found = symbol(name).cast::<Id>();
            // SAFETY: HDF5 exports variables of type `hid_t` by these names.
            unsafe { found.as_ref() }.copied().ok_or(name.to_owned())
        };
        Ok(Constants {
            float32: value("H5T_IEEE_F32LE_g")?,
            float64: value("H5T_IEEE_F64LE_g")?,
            int32: value("H5T_STD_I32LE_g")?,
            int64: value("H5T_STD_I64LE_g")?,
            string: value("H5T_C_S1_g")?,
            file_access: value("H5P_CLS_FILE_ACCESS_ID_g")?,
            file_create: value("H5P_CLS_FILE_CREATE_ID_g")?,
            group_create: value("H5P_CLS_GROUP_CREATE_ID_g")?,
            link_create: value("H5P_CLS_LINK_CREATE_ID_g")?,
            dataset_create: value("H5P_CLS_DATASET_CREATE_ID_g")?,
        })
    }
}

/// Find a function or a variable of a library; NULL if the library has none of this name.
fn symbol(handle: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the handle is that of a library that stays loaded, or of the process; the name ends
    // with a zero byte.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}

/// Load HDF5 by the name in the environment, or else by its usual names. It stays loaded.
fn open_library() -> Result<*mut c_void, String> {
    let open = |name: &CStr| {
        // SAFETY: the name ends with a zero byte. Code that runs when a library is loaded is that
        // of a library that the user chose, or the system has as HDF5.
        unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
    };
    if let Some(given) = env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
        let name = CString::new(given.as_encoded_bytes()).unwrap_or_default();
        let handle = open(&name);
        return match handle.is_null() {
            false => Ok(handle),
            true => Err(format!("{VARIABLE} names no library: {}", last_error())),
        };
    }
    let names = NAMES.iter().flat_map(|name| {
        VERSIONS.map(|version| match cfg!(target_vendor = "apple") {
            true => format!("{name}{version}.dylib"),
            false => format!("{name}.so{version}"),
        })
    });
    let found = names
        .map(|name| open(&CString::new(name).unwrap_or_default()))
        .find(|handle| !handle.is_null());
    found.ok_or_else(|| format!("H5MD needs the HDF5 library, which was not found; {WHAT_TO_SET}"))
}

/// Advice in error messages.
const WHAT_TO_SET: &str =
    "link the program with HDF5, or set PACELINE_HDF5 to the path of libhdf5.so";

fn last_error() -> String {
    // SAFETY: `dlerror` returns NULL or a text that ends with a zero byte, valid until the next
    // call of this thread.
    let text = unsafe { libc::dlerror().as_ref() };
    // SAFETY: as above.
    text.map_or_else(String::new, |text| {
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    })
}

/// Return the version of HDF5. This is possible before all other functions are found.
fn version_of(symbol: &dyn Fn(&str) -> *mut c_void) -> Result<[c_uint; 3], String> {
    let found = symbol("H5get_libversion");
    if found.is_null() {
        return Err(format!(
            "the library that was loaded is not HDF5; {WHAT_TO_SET}"
        ));
    }
    let mut version = [0; 3];
    let [major, minor, release] = &mut version;
    // SAFETY: the function has had this type in all versions of HDF5; it writes three numbers.
    let status = unsafe {
        let function = std::mem::transmute::<
            *mut c_void,
            unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint) -> c_int,
        >(found);
        function(major, minor, release)
    };
    match status < 0 {
        true => Err("HDF5 does not tell its version".into()),
        false => Ok(version),
    }
}

const _: () = assert!(
    size_of::<c_long>() == 8,
    "identifiers and addresses have 64 bits"
);
