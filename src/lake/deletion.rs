//! Deletion vectors: which rows of a data file no longer count, by physical row number. The format is the
//! "Deletion Vector Format" of the Delta protocol.

use std::sync::Arc;

use bytes::Bytes;
use delta_kernel::actions::deletion_vector_writer::{DeletionVector, StreamingDeletionVectorWriter};
use deltalake::kernel::{DeletionVectorDescriptor, StorageType};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use roaring::RoaringTreemap;
use url::Url;
use uuid::Uuid;

use super::LakeError;
use crate::change::TableId;
use crate::failpoint;

/// The number that starts a portable 64-bit roaring bitmap.
const MAGIC: u32 = 1_681_511_377;
/// A bitmap of more bytes than this is taken for damage: it would hold more than a billion scattered rows.
const VECTOR_BYTES_MAX: usize = 256 << 20;
/// The z85 form of a UUID.
const ENCODED_UUID_BYTES: usize = 20;

/// A file in a store.
type Location = (Arc<dyn ObjectStore>, Path);

/// Reads and writes one table's deletion vectors.
pub(super) struct VectorStore {
    pub table: TableId,
    /// Rooted at the table.
    pub store: Arc<dyn ObjectStore>,
    /// Rooted at the host of `url`.
    pub host_store: Arc<dyn ObjectStore>,
    pub url: Url,
}

impl VectorStore {
    /// Reads one vector and checks its size, checksum and cardinality.
    pub async fn read(&self, vector: &DeletionVectorDescriptor) -> Result<RoaringTreemap, LakeError> {
        let rows = match self.location(vector)? {
            None => {
                let bytes =
                    z85::decode(&vector.path_or_inline_dv).map_err(|_| self.damaged("inline", "it is not z85"))?;
                self.parse("inline", &bytes)?
            }
            Some((store, path)) => self.read_file(vector, store.as_ref(), &path).await?,
        };
        if rows.len() != u64::try_from(vector.cardinality).unwrap_or(u64::MAX) {
            let reason = format!("it holds {} rows, the log says {}", rows.len(), vector.cardinality);
            return Err(self.damaged(&vector.path_or_inline_dv, &reason));
        }
        Ok(rows)
    }

    async fn read_file(
        &self,
        vector: &DeletionVectorDescriptor,
        store: &dyn ObjectStore,
        path: &Path,
    ) -> Result<RoaringTreemap, LakeError> {
        let size = usize::try_from(vector.size_in_bytes).ok().filter(|size| *size <= VECTOR_BYTES_MAX);
        let size = size.ok_or_else(|| self.damaged(path.as_ref(), "the log gives it an impossible size"))?;
        let start = u64::try_from(vector.offset.unwrap_or(1))
            .map_err(|_| self.damaged(path.as_ref(), "the log gives it a negative offset"))?;
        let end = start + size as u64 + 8;
        let bytes = store.get_range(path, start..end).await;
        let bytes: Bytes = bytes.map_err(LakeError::store(format!("read the deletion vectors {path}")))?;
        let (Some(length), Some(data), Some(sum)) = (
            number(&bytes, 0, u32::from_be_bytes),
            bytes.get(4..size + 4),
            number(&bytes, size + 4, u32::from_be_bytes),
        ) else {
            return Err(self.damaged(path.as_ref(), "it ends too early"));
        };
        if length as usize != size {
            return Err(self.damaged(path.as_ref(), &format!("it has {length} bytes, the log says {size}")));
        }
        if crc32fast::hash(data) != sum {
            return Err(self.damaged(path.as_ref(), "its checksum is wrong"));
        }
        self.parse(path.as_ref(), data)
    }

    fn parse(&self, file: &str, data: &[u8]) -> Result<RoaringTreemap, LakeError> {
        if number(data, 0, u32::from_le_bytes) != Some(MAGIC) {
            return Err(self.damaged(file, "it does not start as a 64-bit bitmap does"));
        }
        RoaringTreemap::deserialize_from(data.get(4..).unwrap_or_default())
            .map_err(|error| self.damaged(file, &error.to_string()))
    }

    /// Where the vector's file is; `None` for one that is in the log itself.
    fn location(&self, vector: &DeletionVectorDescriptor) -> Result<Option<Location>, LakeError> {
        let text = &vector.path_or_inline_dv;
        match vector.storage_type {
            StorageType::Inline => Ok(None),
            StorageType::UuidRelativePath => {
                let path = relative_path(text).ok_or_else(|| self.damaged(text, "it is not the name of a vector"))?;
                Ok(Some((self.store.clone(), path)))
            }
            StorageType::AbsolutePath => {
                let url = Url::parse(text).ok().filter(|url| same_host(url, &self.url));
                let path = url.and_then(|url| Path::from_url_path(url.path()).ok());
                let path = path.ok_or_else(|| self.damaged(text, "it lies in another store"))?;
                Ok(Some((self.host_store.clone(), path)))
            }
        }
    }

    /// Writes all vectors into one new file. Their descriptors come in the same order.
    pub async fn write(&self, vectors: &[RoaringTreemap]) -> Result<Vec<DeletionVectorDescriptor>, LakeError> {
        let uuid = Uuid::new_v4();
        let path = Path::from(format!("deletion_vector_{uuid}.bin"));
        let (bytes, descriptors) =
            pack(uuid, vectors).map_err(|error| self.damaged(path.as_ref(), &error.to_string()))?;
        failpoint::hit(failpoint::DELETION_VECTOR_BEFORE);
        self.store
            .put(&path, bytes.into())
            .await
            .map_err(LakeError::store(format!("write the deletion vectors {path} of {}", self.table)))?;
        failpoint::hit(failpoint::DELETION_VECTOR_AFTER);
        Ok(descriptors)
    }

    fn damaged(&self, file: &str, reason: &str) -> LakeError {
        LakeError::Damaged {
            table: self.table.clone(),
            file: format!("deletion vector {file}"),
            reason: reason.to_string(),
        }
    }
}

/// Rows as the writer takes them: as they are, where its own type would insert row after row into a set of its own.
struct Rows<'a>(&'a RoaringTreemap);

impl<'a> DeletionVector for Rows<'a> {
    type IndexIterator = roaring::treemap::Iter<'a>;

    fn into_iter(self) -> Self::IndexIterator {
        self.0.iter()
    }

    fn cardinality(&self) -> u64 {
        self.0.len()
    }

    fn serialize(self) -> delta_kernel::DeltaResult<Bytes> {
        let mut bytes = Vec::with_capacity(self.0.serialized_size());
        self.0.serialize_into(&mut bytes).map_err(|error| delta_kernel::Error::generic(error.to_string()))?;
        Ok(bytes.into())
    }
}

fn pack(
    uuid: Uuid,
    vectors: &[RoaringTreemap],
) -> Result<(Vec<u8>, Vec<DeletionVectorDescriptor>), delta_kernel::Error> {
    let mut bytes = Vec::new();
    let mut writer = StreamingDeletionVectorWriter::new(&mut bytes);
    let mut descriptors = Vec::with_capacity(vectors.len());
    for rows in vectors {
        let written = writer.write_deletion_vector(Rows(rows))?;
        descriptors.push(DeletionVectorDescriptor {
            storage_type: StorageType::UuidRelativePath,
            path_or_inline_dv: z85::encode(uuid.as_bytes()),
            offset: Some(written.offset),
            size_in_bytes: written.size_in_bytes,
            cardinality: written.cardinality,
        });
    }
    writer.finalize()?;
    Ok((bytes, descriptors))
}

/// The file of a vector that this module wrote.
pub(super) fn file_of(vector: &DeletionVectorDescriptor) -> Option<Path> {
    relative_path(&vector.path_or_inline_dv)
}

/// Not by the URLs' origins: those of `s3`, `file` and `memory` equal nothing, not even themselves.
fn same_host(a: &Url, b: &Url) -> bool {
    (a.scheme(), a.host_str(), a.port()) == (b.scheme(), b.host_str(), b.port())
}

/// `<optional prefix><z85 of a UUID>` stands for `<prefix>/deletion_vector_<uuid>.bin`.
fn relative_path(text: &str) -> Option<Path> {
    let split = text.len().checked_sub(ENCODED_UUID_BYTES)?;
    let (prefix, encoded) = (text.get(..split)?, text.get(split..)?);
    let uuid = Uuid::from_slice(&z85::decode(encoded).ok()?).ok()?;
    let name = format!("deletion_vector_{uuid}.bin");
    Some(if prefix.is_empty() { Path::from(name) } else { Path::from(format!("{prefix}/{name}")) })
}

fn number(bytes: &[u8], at: usize, from: fn([u8; 4]) -> u32) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(from)
}
