//! Tables with deletion vectors, as the lake's own upsert writes them, against a model.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::DataType;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::output::{Format, write};
use super::super::{QueryError, QueryLimits, Session};
use crate::batch::KeyedChanges;
use crate::change::{ChangeBatch, Operation, SourcePosition, TableId, TransactionSpan};
use crate::lake::{CommitOutcome, CommitTag, Lake, LakeTable};
use crate::schema::{Column, TableSchema};

const SEED: u64 = 20_260_131;
const BATCHES: i64 = 8;
const CHANGES_PER_BATCH: usize = 120;
const KEYS: i64 = 300;

type Model = BTreeMap<i64, String>;

fn schema() -> Arc<TableSchema> {
    let column = |name: &str, data_type, nullable| Column { nullable, ..Column::new(name, data_type, "any") };
    Arc::new(TableSchema::new(
        TableId::new("shop", "orders"),
        vec![column("id", DataType::Int64, false), column("note", DataType::Utf8, true)],
        vec![0],
    ))
}

fn batch(changes: &[(i64, Option<String>)]) -> ChangeBatch {
    let ids = Int64Array::from_iter_values(changes.iter().map(|(id, _)| *id));
    let notes = StringArray::from_iter(changes.iter().map(|(_, note)| note.as_deref()));
    let schema = schema();
    let operation = |(_, note): &(i64, Option<String>)| note.as_ref().map_or(Operation::Delete, |_| Operation::Update);
    ChangeBatch {
        rows: RecordBatch::try_new(schema.arrow_schema(), vec![Arc::new(ids) as ArrayRef, Arc::new(notes)]).unwrap(),
        operations: changes.iter().map(operation).collect(),
        gaps: None,
        transactions: vec![TransactionSpan {
            first_row: 0,
            commit_time_us: 0,
            position: SourcePosition { order: (1, 4), text: "log.000001:4".to_string() },
        }],
        schema,
    }
}

fn tag(sequence: i64) -> CommitTag {
    CommitTag { app_ids: vec![("alluvium/test".to_string(), sequence)], ..CommitTag::default() }
}

/// Applies random changes to the table and to the model alike; the table's version afterwards.
async fn change(table: &mut LakeTable, model: &mut Model, random: &mut StdRng, sequence: i64) -> i64 {
    let changes: Vec<(i64, Option<String>)> = (0..CHANGES_PER_BATCH)
        .map(|_| {
            let id = random.random_range(0..KEYS);
            (id, random.random_bool(0.7).then(|| format!("{sequence}/{id}")))
        })
        .collect();
    for (id, note) in &changes {
        match note {
            Some(note) => _ = model.insert(*id, note.clone()),
            None => _ = model.remove(id),
        }
    }
    let keyed = KeyedChanges::from_batches(schema(), vec![batch(&changes)]).unwrap();
    let outcome = table.apply(keyed, &tag(sequence)).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    table.version()
}

const LAKE_URL: &str = "memory:///lake/";

/// A lake in memory whose one table went through random batches, and what it held at each version.
async fn lake() -> (Session, BTreeMap<i64, Model>) {
    lake_in(Arc::new(InMemory::new())).await
}

async fn lake_in(store: Arc<InMemory>) -> (Session, BTreeMap<i64, Model>) {
    let lake = Lake::with_store(url::Url::parse(LAKE_URL).unwrap(), store);
    let mut table = lake.create_table(&schema(), &tag(0)).await.unwrap();
    let mut random = StdRng::seed_from_u64(SEED);
    let mut model = Model::new();
    let mut versions = BTreeMap::from([(table.version(), model.clone())]);
    for sequence in 1..=BATCHES {
        let version = change(&mut table, &mut model, &mut random, sequence).await;
        versions.insert(version, model.clone());
    }
    assert!(table.stats().deleted_rows > 0, "no deletion vector was written (seed {SEED})");
    let limits = QueryLimits { memory_bytes: super::MEMORY_BYTES, spill_dir: std::env::temp_dir() };
    (Session::over(lake, vec![schema().table.clone()], &limits).unwrap(), versions)
}

async fn check(session: &Session, sql: &str, expected: impl Iterator<Item = String>) {
    let (_, stream) = session.sql(sql).await.unwrap();
    let mut text = Vec::new();
    write(stream, Format::Csv, &mut text).await.unwrap();
    let text = String::from_utf8(text).unwrap();
    let found: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(found, expected.collect::<Vec<_>>(), "{sql} (seed {SEED})");
}

#[tokio::test]
async fn every_version_of_a_table_with_deletion_vectors_is_what_the_model_was() {
    let (session, versions) = lake().await;
    for (version, model) in &versions {
        let rows = model.iter().map(|(id, note)| format!("{id},{note}"));
        check(&session, &format!("SELECT * FROM orders VERSION AS OF {version} ORDER BY id"), rows).await;
    }
}

#[tokio::test]
async fn filters_limits_and_joins_of_versions_see_live_rows_only() {
    let (session, versions) = lake().await;
    let (newest, now) = versions.last_key_value().unwrap();
    let before = versions.get(&(newest - 1)).unwrap();

    let filtered = now.range(100..200).map(|(id, note)| format!("{id},{note}"));
    check(&session, "SELECT * FROM orders WHERE id BETWEEN 100 AND 199 ORDER BY id", filtered).await;
    check(&session, "SELECT count(*), min(id) FROM orders", std::iter::once(counted(now))).await;
    let limited = std::iter::once(now.len().min(7).to_string());
    check(&session, "SELECT count(*) FROM (SELECT id FROM orders LIMIT 7)", limited).await;

    let changed = now.iter().filter(|(id, note)| before.get(id).is_some_and(|old| old != *note));
    let join = "SELECT n.id, n.note, o.note FROM orders n JOIN orders VERSION AS OF {v} o ON n.id = o.id \
                WHERE n.note <> o.note ORDER BY n.id";
    let rows = changed.map(|(id, note)| format!("{id},{note},{}", before[id]));
    check(&session, &join.replace("{v}", &(newest - 1).to_string()), rows).await;
    let gone = before.keys().filter(|id| !now.contains_key(id)).map(i64::to_string);
    let gone_sql = format!("SELECT id FROM orders@v{} EXCEPT SELECT id FROM orders ORDER BY id", newest - 1);
    check(&session, &gone_sql, gone).await;
}

fn counted(model: &Model) -> String {
    format!("{},{}", model.len(), model.keys().next().unwrap())
}

#[tokio::test]
async fn a_missing_vector_is_told_like_missing_data_and_never_read_as_no_deletes() {
    let store = Arc::new(InMemory::new());
    let (session, _) = lake_in(Arc::clone(&store)).await;
    let files: Vec<_> = store.list(None).try_collect().await.unwrap();
    for file in files.iter().filter(|file| file.location.as_ref().ends_with(".bin")) {
        store.delete(&file.location).await.unwrap();
    }
    let error = match session.sql("SELECT * FROM orders").await {
        Ok((_, stream)) => write(stream, Format::Csv, &mut Vec::new()).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, QueryError::FileGone { .. }), "{error:?}");
}

#[tokio::test]
async fn describe_knows_the_key() {
    let (session, _) = lake().await;
    let rows = ["id,long,NO,PRI", "note,string,YES,\"\""].map(str::to_string);
    check(&session, "DESCRIBE orders", rows.into_iter()).await;
}
