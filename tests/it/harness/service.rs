//! Servers that are no relational databases: an S3 store, DynamoDB, and Spark. Started by the scripts in `tests/servers`, one of each for
//! all tests of the process.

use std::net::TcpListener;
use std::path::Path;
use std::process::Child;
use std::sync::OnceLock;

use super::server::start_keeper;

/// SeaweedFS takes this many ports in a row.
const S3_PORTS: u16 = 8;

/// Below the ports that the system gives out by itself, so that nothing takes one of the row in between.
const S3_PORTS_FROM: u16 = 20_000;
const S3_PORTS_TO: u16 = 32_000;

/// A running server. It ends with the test process, as the databases do.
pub struct Service {
    pub port: u16,
    _keeper: Child,
}

impl Service {
    /// SeaweedFS; its first bucket is `lake`.
    pub fn s3() -> &'static Service {
        static S3: OnceLock<Service> = OnceLock::new();
        S3.get_or_init(|| Self::start("s3", free_row(0)))
    }

    /// DynamoDB with its streams: moto, which keeps all in memory.
    pub fn dynamodb() -> &'static Service {
        static DYNAMODB: OnceLock<Service> = OnceLock::new();
        // A row of its own, though it takes one port: others are started at the same time.
        DYNAMODB.get_or_init(|| Self::start("dynamodb", free_row(1)))
    }

    /// Spark with Delta Lake, for Spark Connect. It reads local folders only.
    pub fn spark() -> &'static Service {
        static SPARK: OnceLock<Service> = OnceLock::new();
        SPARK.get_or_init(|| {
            Self::start("spark", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port())
        })
    }

    fn start(name: &str, port: u16) -> Self {
        let folder = std::env::temp_dir().join(format!("alluvium-{name}-{}", std::process::id()));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/servers/{name}.sh"));
        Self { port, _keeper: start_keeper(&script, &folder, port, &[]) }
    }
}

/// The first of [`S3_PORTS`] free ports. Each process looks from another one on, and each of its services half a round further.
fn free_row(service: u16) -> u16 {
    let rows = (S3_PORTS_TO - S3_PORTS_FROM) / S3_PORTS;
    let first = u16::try_from(std::process::id() % u32::from(rows)).unwrap() + service * rows / 2;
    let row = |number: u16| S3_PORTS_FROM + (first + number) % rows * S3_PORTS;
    let is_free = |port: &u16| (*port..port + S3_PORTS).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    (0..rows).map(row).find(is_free).expect("a row of free ports")
}
