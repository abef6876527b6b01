//! Job files in a temporary folder, and the real binary that runs them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::lake::LakeReader;
use super::server::{PASSWORD, READER, Server};

/// The variable that job files of tests take their password from.
const PASSWORD_VARIABLE: &str = "ALLUVIUM_TEST_PASSWORD";

/// A run that takes longer is killed and the test fails: a hang must not hold up the suite.
const RUN_TIME_MAX: Duration = Duration::from_secs(180);

/// Small batches, so that a short test passes the steps of a batch many times.
pub const SMALL_BATCHES: &str = "run:\n  memory: 256MiB\n  batch: { rows: 40, seconds: 1 }\n";

/// Small batches, and upkeep at each end of a run and between the batches of one that follows.
pub const BUSY_UPKEEP: &str = "run:\n  memory: 256MiB\n  batch: { rows: 40, seconds: 1 }\nmaintain:\n  \
    compact: { every: 1s, small_files: 2, deleted_percent: 5 }\n  vacuum: { every: 1s }\n  checkpoint: { versions: 3 }\n";

/// A job file with a lake beside it.
pub struct TempJob {
    folder: TempDir,
    name: String,
    environment: Vec<(String, String)>,
}

/// What a finished run left behind.
#[derive(Debug)]
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl TempJob {
    /// A job that follows `tables` of a live server. `more` is YAML for the file's top level.
    pub fn live(server: &Server, tables: &[&str], more: &str) -> Self {
        Self::live_as(server, READER, tables, more)
    }

    pub fn live_as(server: &Server, user: &str, tables: &[&str], more: &str) -> Self {
        Self::new(&Self::live_source(server, user, tables), more)
    }

    /// The section `source` of a live job, for a test that appends keys of it or gives another address.
    pub fn live_source(server: &Server, user: &str, tables: &[&str]) -> String {
        let url = server.url_of(user);
        format!(
            "source:\n  type: mysql\n  url: {url}\n  password: {{ env: {PASSWORD_VARIABLE} }}\n  tables: {tables:?}\n"
        )
    }

    /// A job that reads binlog files.
    pub fn files(files: &[PathBuf], tables: &[&str], more: &str) -> Self {
        Self::new(&Self::files_source(files, tables), more)
    }

    /// The section `source` of a job that reads binlog files.
    pub fn files_source(files: &[PathBuf], tables: &[&str]) -> String {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        format!("source:\n  type: binlog_files\n  files: {files:?}\n  tables: {tables:?}\n")
    }

    /// `source` is the whole section, with its heading.
    pub fn new(source: &str, more: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let job = Self {
            // A replica's server id comes from the job's name, and one server takes each id once.
            name: format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst)),
            folder: TempDir::with_prefix("alluvium-job-").unwrap(),
            environment: vec![(PASSWORD_VARIABLE.to_string(), PASSWORD.to_string())],
        };
        job.write(source, more);
        job
    }

    /// Replaces the job file; the lake stays.
    pub fn write(&self, source: &str, more: &str) {
        self.write_with_lake(source, "lake:\n  path: ./lake\n", more);
    }

    /// The same with a section `lake`, for a lake elsewhere.
    pub fn write_with_lake(&self, source: &str, lake: &str, more: &str) {
        std::fs::write(self.file(), format!("version: 1\njob: {}\n{source}{lake}{more}", self.name)).unwrap();
    }

    /// Sets a variable for all runs from now on.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_string(), value.to_string()));
    }

    pub fn file(&self) -> PathBuf {
        self.folder.path().join("job.yaml")
    }

    /// The job's own name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn lake_folder(&self) -> PathBuf {
        self.folder.path().join("lake")
    }

    pub fn lake(&self) -> LakeReader {
        LakeReader::new(self.lake_folder())
    }

    /// `alluvium run`, to its end.
    pub fn run(&self) -> Outcome {
        self.spawn(&["run"], &[]).wait()
    }

    /// `alluvium VERB ... -j job.yaml`, to its end.
    pub fn verb(&self, arguments: &[&str]) -> Outcome {
        self.spawn(arguments, &[]).wait()
    }

    /// Starts `alluvium VERB ... -j job.yaml` with more environment.
    pub fn spawn(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Running {
        let mut child = Command::new(env!("CARGO_BIN_EXE_alluvium"))
            .args(arguments)
            .arg("-j")
            .arg(self.file())
            .current_dir(self.folder.path())
            .env_remove("ALLUVIUM_FAILPOINT")
            .envs(self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())))
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = read_in_background(child.stdout.take().unwrap());
        let stderr = read_in_background(child.stderr.take().unwrap());
        Running { child, output: Some((stdout, stderr)), started: Instant::now() }
    }
}

/// A run that has not ended yet; killed when dropped.
pub struct Running {
    child: Child,
    output: Option<(JoinHandle<String>, JoinHandle<String>)>,
    started: Instant,
}

impl Running {
    /// Waits for its end.
    ///
    /// # Panics
    /// When it takes longer than [`RUN_TIME_MAX`].
    pub fn wait(mut self) -> Outcome {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return self.outcome(status);
            }
            if self.started.elapsed() > RUN_TIME_MAX {
                self.child.kill().unwrap();
                let status = self.child.wait().unwrap();
                panic!("the run did not end within {RUN_TIME_MAX:?}: {:#?}", self.outcome(status));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The same, with the most memory that it ever held, in MiB: looked at every `interval`.
    pub fn wait_with_peak(mut self, interval: Duration) -> (u64, Outcome) {
        let status_file = format!("/proc/{}/status", self.child.id());
        let mut peak_kib = 0;
        while self.is_running() {
            assert!(self.started.elapsed() <= RUN_TIME_MAX, "the run did not end within {RUN_TIME_MAX:?}");
            let status = std::fs::read_to_string(&status_file).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            peak_kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(peak_kib);
            std::thread::sleep(interval);
        }
        (peak_kib / 1024, self.wait())
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Kills it at once (SIGKILL), as the out-of-memory killer does.
    pub fn kill9(mut self) -> Outcome {
        let _ = self.child.kill();
        let status = self.child.wait().unwrap();
        self.outcome(status)
    }

    /// Asks it to stop (SIGTERM), and waits.
    pub fn terminate(self) -> Outcome {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        self.wait()
    }

    fn outcome(&mut self, status: ExitStatus) -> Outcome {
        let (stdout, stderr) = self.output.take().unwrap();
        Outcome { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Outcome {
    /// # Panics
    /// When it ended with another code, with all that it printed.
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "expected exit code {code}: {self:#?}");
        self
    }

    /// # Panics
    /// When its standard error lacks one of the words.
    pub fn expect_stderr(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "expected {word:?} on standard error: {self:#?}");
        }
        self
    }
}

fn read_in_background(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
