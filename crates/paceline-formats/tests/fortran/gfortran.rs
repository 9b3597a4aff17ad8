//! Small Fortran programs for comparison.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub struct Program(PathBuf);

impl Program {
    /// Compile `NAME.f90` of this folder; return `None`, with a note, if there is no gfortran.
    pub fn compile(name: &str) -> Option<Program> {
        let source = format!("{}/tests/fortran/{name}.f90", env!("CARGO_MANIFEST_DIR"));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fortran");
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join(format!("{name}-{}", std::process::id()));
        let compiler = Command::new("gfortran")
            .args(["-O1", "-o"])
            .arg(&program)
            .arg(source)
            .status();
        match compiler {
            Ok(status) => {
                assert!(status.success());
                Some(Program(program))
            }
            Err(_) => {
                // Write to stderr directly, because the test harness hides the output of tests that
                // pass.
                let test = std::thread::current();
                let test = test.name().unwrap_or("a test").to_owned();
                let said = writeln!(std::io::stderr(), "skipped {test}: gfortran is not on PATH");
                said.unwrap();
                None
            }
        }
    }

    /// Return the output of the program for `input`.
    pub fn run(&self, input: &str) -> String {
        let mut process = Command::new(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = process.stdin.take().unwrap();
        let input = input.to_owned();
        // A thread writes the input, because the program already prints while it reads.
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        let output = process.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
