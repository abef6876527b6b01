//! A connection that breaks where a test wants it to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Passes bytes between clients and a server on this machine, and hangs up on each client after as many bytes from the server
/// as it is allowed. Ends when dropped.
pub struct Proxy {
    pub port: u16,
    passed: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// `limit` gives how many bytes the next connection may get, `None` for all.
    pub async fn start(server_port: u16, mut limit: impl FnMut() -> Option<u64> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let passed = Arc::new(AtomicU64::new(0));
        let count = passed.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server_port, limit().unwrap_or(u64::MAX), count.clone()));
            }
        });
        Self { port, passed, task }
    }

    /// Bytes that the server has sent through connections that are over.
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(client: TcpStream, server_port: u16, limit: u64, passed: Arc<AtomicU64>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)).await else { return };
    let (mut client_read, mut client_write) = client.into_split();
    let (server_read, mut server_write) = server.into_split();
    let mut server_read = server_read.take(limit);
    let up = async {
        let _ = copy(&mut client_read, &mut server_write).await;
        let _ = server_write.shutdown().await;
        // What the server has still to say is passed on.
        std::future::pending::<()>().await;
    };
    let down = copy(&mut server_read, &mut client_write);
    tokio::select! {
        () = up => {}
        _ = down => {}
    }
    passed.fetch_add(limit - server_read.limit(), Ordering::SeqCst);
    let _ = client_write.shutdown().await;
}
