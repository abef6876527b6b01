//! Where the lake is, and the store that holds it.

use std::sync::Arc;

use deltalake::logstore::{LogStoreRef, StorageConfig, default_logstore, object_store_factories};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};
use url::Url;

use super::LakeError;
use super::write::{LAYOUT, Layout};
use crate::change::TableId;
use crate::config::{LakeConfig, TableRules};

/// What one table's work may hold in memory unless [`Lake::with_memory`] says otherwise.
const MEMORY_BYTES_DEFAULT: usize = 256 << 20;

/// A lake: a folder or bucket prefix with one Delta table per source table. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Lake {
    root: Url,
    /// Rooted where `root`'s host is, as Delta's readers want it.
    host_store: Arc<dyn ObjectStore>,
    /// Rooted at the lake.
    store: Arc<dyn ObjectStore>,
    memory_bytes: usize,
    layout: Layout,
    rules: Arc<TableRules>,
    /// Whether rows are located without statistics and filters.
    exhaustive: bool,
}

impl Lake {
    /// Opens the lake that the job file names. A local folder is made when it is missing. Credentials come
    /// from `config.options`, then from the environment (`AWS_*`). The store is not asked anything yet.
    ///
    /// # Errors
    /// [`LakeError::Location`] for a URL that is neither `file` nor `s3`, or options that the store refuses.
    pub fn open(config: &LakeConfig) -> Result<Self, LakeError> {
        let location = |reason: String| LakeError::Location { location: config.url.to_string(), reason };
        if config.url.path().contains(if config.url.scheme() == "file" { "%25" } else { "%" }) {
            let reason = "Delta's readers cannot find deletion vectors below a path with percent signs, or outside \
                          local disks with blanks or letters beyond ASCII";
            return Err(location(reason.into()));
        }
        let host_store: Arc<dyn ObjectStore> = match config.url.scheme() {
            "file" => {
                let folder = config.url.to_file_path().map_err(|()| location("it is not a local path".into()))?;
                std::fs::create_dir_all(&folder).map_err(|error| location(error.to_string()))?;
                Arc::new(LocalFileSystem::new())
            }
            "s3" => s3_store(config).map_err(location)?,
            scheme => return Err(location(format!("{scheme} is not among the known schemes file and s3"))),
        };
        Ok(Self::with_store(config.url.clone(), host_store))
    }

    /// A lake at `root` in a store that is rooted at `root`'s host: paths in `store` are the paths of URLs.
    /// For tests, which wrap the store or keep it in memory (`memory:///lake/`).
    pub fn with_store(mut root: Url, store: Arc<dyn ObjectStore>) -> Self {
        if !root.path().ends_with('/') {
            root.set_path(&format!("{}/", root.path()));
        }
        let prefix = Path::from_url_path(root.path()).unwrap_or_default();
        let lake_store = Arc::new(PrefixStore::new(store.clone(), prefix));
        Self {
            root,
            host_store: store,
            store: lake_store,
            memory_bytes: MEMORY_BYTES_DEFAULT,
            layout: LAYOUT,
            rules: Arc::default(),
            exhaustive: false,
        }
    }

    /// Bounds what the work on one table may hold: keys, footers, pages in flight and rows being encoded.
    #[must_use]
    pub fn with_memory(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// How single tables are written.
    #[must_use]
    pub fn with_rules(mut self, rules: TableRules) -> Self {
        self.rules = Arc::new(rules);
        self
    }

    /// The store, rooted at the lake.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        self.store.clone()
    }

    /// The lake's URL; ends in a slash.
    pub fn root(&self) -> &Url {
        &self.root
    }

    /// Checks that of two creates of one object exactly one wins: what keeps two writers from committing the
    /// same version. Writes and removes one small object.
    ///
    /// # Errors
    /// [`LakeError::NoConditionalPut`] if both win, [`LakeError::Refused`] if the store does not accept the keys.
    pub async fn probe(&self) -> Result<(), LakeError> {
        let path = Path::from(format!("_alluvium_probe_{}", uuid::Uuid::new_v4().simple()));
        let create = || self.store.put_opts(&path, "probe".into(), PutMode::Create.into());
        create().await.map_err(|error| self.first_write_error(error))?;
        let second = create().await;
        let removed = self.store.delete(&path).await;
        match second {
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                removed.map_err(LakeError::store(format!("delete in the lake {}", self.root)))
            }
            Ok(_) => Err(LakeError::NoConditionalPut { location: self.root.to_string() }),
            Err(error) => Err(LakeError::store(format!("probe the lake {}", self.root))(error)),
        }
    }

    /// Keys that are refused before anything was written are wrong, and trying again does not mend them.
    fn first_write_error(&self, error: object_store::Error) -> LakeError {
        use object_store::Error::{PermissionDenied, Unauthenticated};
        match error {
            PermissionDenied { .. } | Unauthenticated { .. } => {
                LakeError::Refused { location: self.root.to_string(), source: Box::new(error) }
            }
            error => LakeError::store(format!("write to the lake {}", self.root))(error),
        }
    }

    /// The URL of a table's folder; ends in a slash.
    pub fn table_url(&self, table: &TableId) -> Url {
        let mut url = self.root.clone();
        url.set_path(&format!("{}{}/", self.root.path(), table_path(table)));
        url
    }

    /// Other sizes of files, row groups and pages: small tables then have many.
    #[cfg(test)]
    pub(super) fn with_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    pub(super) fn rules(&self) -> &TableRules {
        &self.rules
    }

    /// Locates rows by reading all keys of all files: for tests, to compare with.
    #[cfg(test)]
    pub(super) fn exhaustive(mut self) -> Self {
        self.exhaustive = true;
        self
    }

    pub(super) fn is_exhaustive(&self) -> bool {
        self.exhaustive
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout.within(self.memory_bytes)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub(super) fn host_store(&self) -> Arc<dyn ObjectStore> {
        self.host_store.clone()
    }

    pub(super) fn table_store(&self, table: &TableId) -> Arc<dyn ObjectStore> {
        Arc::new(PrefixStore::new(self.store.clone(), table_path(table)))
    }

    /// The log and the files of a table, whether it is there or not: what Delta's readers start from.
    pub fn log_store(&self, table: &TableId) -> LogStoreRef {
        let url = self.table_url(table);
        default_logstore(self.table_store(table), self.host_store(), &url, &StorageConfig::default())
    }
}

impl Lake {
    /// The same of a Delta table of Alluvium's own, in a folder below the lake's root.
    pub(super) fn log_store_at(&self, folder: &Path) -> LogStoreRef {
        let mut url = self.root.clone();
        url.set_path(&format!("{}{folder}/", self.root.path()));
        let store = Arc::new(PrefixStore::new(self.store.clone(), folder.clone()));
        default_logstore(store, self.host_store(), &url, &StorageConfig::default())
    }
}

fn s3_store(config: &LakeConfig) -> Result<Arc<dyn ObjectStore>, String> {
    deltalake::aws::register_handlers(None);
    let scheme = Url::parse("s3://").map_err(|error| error.to_string())?;
    let options = StorageConfig::parse_options(config.options.iter().map(|(k, v)| (k.clone(), v.clone())))
        .map_err(|error| error.to_string())?;
    let factory = object_store_factories().get(&scheme).map(|entry| entry.value().clone());
    let factory = factory.ok_or("no store for s3 is built in")?;
    let (store, _) = factory.parse_url_opts(&config.url, &options).map_err(|error| error.to_string())?;
    Ok(store)
}

/// The folder of a table below the lake's root: `<database>/<table>`. ASCII letters, digits, `_`, `-` and inner dots
/// stay; each other byte becomes `!` and two hexadecimal digits. (Percent signs, and all that a URL escapes with
/// them, are decoded once too often or not at all by Delta's own readers, depending on the store.)
pub fn table_path(table: &TableId) -> Path {
    Path::from(format!("{}/{}", escaped(&table.database), escaped(&table.table)))
}

fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && index > 0) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("!{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: (&str, &str), path: &str) {
        assert_eq!(table_path(&TableId::new(names.0, names.1)).as_ref(), path);
    }

    #[test]
    fn names_become_folders_that_no_other_name_has() {
        check(("shop", "orders_2-x"), "shop/orders_2-x");
        check(("..", "a/b"), "!2e./a!2fb");
        check(("a b%", "täble^!1"), "a!20b!25/t!c3!a4ble!5e!211");
    }
}
