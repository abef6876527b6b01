//! A MySQL or MariaDB server of a bench's own, started by the scripts of the tests.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const PASSWORD: &str = "alluvium";

/// Ends when this is dropped, or with the process.
pub struct Server {
    pub port: u16,
    keeper: Child,
    folder: PathBuf,
}

impl Server {
    /// `kind` is `mysql` or `mariadb`. Data and logs go into `folder`.
    pub fn start(kind: &str, folder: &Path, options: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut keeper = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/servers/{kind}.sh")))
            .arg(folder)
            .arg(port.to_string())
            .args(options)
            .env("HELD", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "no server: run tests/servers/install.sh");
        Self { port, keeper, folder: folder.to_path_buf() }
    }

    /// MariaDB's own client, which MySQL understands too.
    #[allow(dead_code)]
    pub fn client(&self) -> Command {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-h127.0.0.1", "-uroot"]);
        client.args([format!("-p{PASSWORD}"), format!("-P{}", self.port)]);
        client
    }

    /// Runs statements, and gives what they print: a line for each row, a tab between columns.
    pub fn run(&self, sql: &str) -> String {
        let output = self.client().args(["--batch", "--skip-column-names", "-e", sql]).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Does `work`, and gives the files of the log that it is in, oldest first.
    #[allow(dead_code)]
    pub fn logged(&self, work: impl FnOnce(&Self)) -> Vec<PathBuf> {
        self.run("FLUSH BINARY LOGS");
        let names = |server: &Self| -> Vec<String> {
            let lines = server.run("SHOW BINARY LOGS");
            lines.lines().filter_map(|line| line.split('\t').next()).map(str::to_string).collect()
        };
        let before = names(self).len() - 1;
        work(self);
        self.run("FLUSH BINARY LOGS");
        let all = names(self);
        all[before..all.len() - 1].iter().map(|name| self.folder.join("data").join(name)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
