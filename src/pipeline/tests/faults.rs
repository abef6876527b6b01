//! Tables at fault, and the upkeep of all others.

use super::*;

/// Makes the newest commit of a table one that no reader understands.
async fn damage_log(world: &World, table: &str) {
    let store = world.lake.store();
    let log = object_store::path::Path::from(format!("shop/{table}/_delta_log"));
    let commits: Vec<_> = store.list(Some(&log)).map_ok(|object| object.location).try_collect().await.unwrap();
    store.put(commits.iter().max().unwrap(), "{\"add\": 7}\n{nothing".into()).await.unwrap();
}

#[tokio::test]
async fn a_table_whose_delta_log_is_damaged_is_taken_out_and_no_other() {
    let world = World::new().begun().await;
    damage_log(&world, "a").await;
    let stream = vec![announce(schema("b"), 15), rows("b", 20, &[1]), rows("a", 20, &[2]), boundary(20)];
    let outcome = world.run(20, vec![stream]).await.unwrap();
    assert!(outcome.tables[0].stopped.is_some(), "{outcome:?}");
    world.check("b", 1).await;
    // And for good: a later run does not try it again.
    world.run(30, vec![vec![rows("b", 30, &[2]), boundary(30)]]).await.unwrap();
    world.check("b", 2).await;
}

#[tokio::test]
async fn a_damaged_table_of_an_interrupted_batch_is_taken_out_and_the_others_get_it() {
    let world = World::new().begun().await;
    world.run(20, vec![vec![announce(schema("b"), 15), boundary(20)]]).await.unwrap();
    damage_log(&world, "a").await;
    world.interrupted(Work::Batch { tables: vec![id("a"), id("b")], splits: Vec::new() }, 30).await;
    let again = vec![rows("a", 30, &[2]), rows("b", 30, &[1]), boundary(30)];
    let outcome = world.run(30, vec![again, vec![]]).await.unwrap();
    assert!(outcome.tables[0].stopped.is_some() && outcome.tables[1].stopped.is_none(), "{outcome:?}");
    world.check("b", 1).await;
}

#[tokio::test]
async fn a_table_with_a_damaged_data_file_is_taken_out_after_the_others_have_the_batch() {
    let world = World::new().begun().await;
    let (store, folder) = (world.lake.store(), object_store::path::Path::from("shop/a"));
    let files: Vec<_> = store.list(Some(&folder)).map_ok(|object| object.location).try_collect().await.unwrap();
    let data = files.iter().find(|path| path.as_ref().ends_with(".parquet")).unwrap();
    let bytes = store.get(data).await.unwrap().bytes().await.unwrap();
    store.put(data, vec![0_u8; bytes.len()].into()).await.unwrap();
    let stream = vec![announce(schema("b"), 15), rows("a", 20, &[1]), rows("b", 20, &[1]), boundary(20)];
    let outcome = world.run(20, vec![stream]).await.unwrap();
    let stopped = outcome.tables[0].stopped.as_ref().unwrap();
    assert!(stopped.contains("is damaged"), "{stopped}");
    world.check("a", 1).await;
    world.check("b", 1).await;
    assert_eq!(world.state().await.newest.end, at(20));
    let status = crate::pipeline::status(&world.job(), &world.lake, &*world.clock).await.unwrap();
    assert!(matches!(status.tables[0].progress, crate::pipeline::TableProgress::Stopped { .. }), "{status:?}");
}

#[tokio::test]
async fn all_tables_at_fault_in_a_batch_are_taken_out_in_one_step_after_its_point() {
    let world = World::new().begun().await;
    world.run(20, vec![vec![announce(schema("b"), 15), announce(schema("c"), 16), boundary(20)]]).await.unwrap();
    damage_log(&world, "a").await;
    damage_log(&world, "b").await;
    let tables = vec![id("a"), id("b"), id("c")];
    world.interrupted(Work::Batch { tables, splits: Vec::new() }, 30).await;
    let interrupted = world.state().await.newest.sequence;
    let again = vec![rows("a", 30, &[2]), rows("b", 30, &[1]), rows("c", 30, &[1]), boundary(30)];
    world.run(30, vec![again, vec![]]).await.unwrap();
    // A crash between two steps would leave one of them with a batch that it lacks, and nobody would know.
    let Work::Stop { tables: stopped } = world.state().await.newest.work else { panic!("tables are taken out") };
    assert_eq!(stopped.iter().map(|record| record.table.clone()).collect::<Vec<_>>(), [id("a"), id("b")]);
    // What the batch made of the third is known, though the next step came before anyone read it.
    let points = crate::lake::Points::new(&world.lake, "shop").unfolded().await.unwrap();
    let point = points.iter().find(|point| point.sequence == interrupted).expect("the step has its point");
    let third = point.tables.iter().find(|table| table.table == id("c")).unwrap();
    assert_eq!(third.version, Some(1));
}

#[tokio::test]
async fn a_table_whose_files_are_gone_is_taken_out_and_no_other() {
    let world = World::new().begun().await;
    let (store, folder) = (world.lake.store(), object_store::path::Path::from("shop/a"));
    let files: Vec<_> = store.list(Some(&folder)).map_ok(|object| object.location).try_collect().await.unwrap();
    for file in files {
        store.delete(&file).await.unwrap();
    }
    let stream = vec![announce(schema("b"), 15), rows("a", 20, &[1]), rows("b", 20, &[1]), boundary(20)];
    let outcome = world.run(20, vec![stream]).await.unwrap();
    let stopped = outcome.tables[0].stopped.as_ref().unwrap();
    assert!(stopped.contains("--resnapshot shop.a"), "{stopped}");
    world.check("b", 1).await;
}

#[tokio::test]
async fn a_table_whose_place_another_has_taken_is_taken_out_and_no_other() {
    let world = World::new();
    let stranger = World { lake: world.lake.clone(), ..World::new() };
    let mut job = stranger.job();
    job.name = "other".into();
    let source = Scripted {
        head: 10,
        streams: Mutex::new(vec![vec![announce(schema("a"), 5), rows("a", 10, &[1, 2]), boundary(10)]].into()),
        ..Scripted::default()
    };
    let environment = Environment {
        source: Arc::new(source),
        lake: world.lake.clone(),
        clock: Arc::clone(&world.clock),
        observer: Arc::new(Silent),
        stop: CancellationToken::new(),
    };
    run(&job, RunOptions::default(), environment).await.unwrap();
    let stream = vec![announce(schema("a"), 5), announce(schema("b"), 6), rows("b", 20, &[1]), boundary(20)];
    let outcome = world.run(20, vec![stream]).await.unwrap();
    assert!(outcome.tables[0].stopped.is_some(), "{outcome:?}");
    world.check("b", 1).await;
    world.check("a", 2).await;
}

#[tokio::test]
async fn changes_of_other_tables_go_on_while_the_source_is_too_busy_for_a_load() {
    let world = World::loading();
    let source = Scripted {
        head: 30,
        tables: vec![schema("a")],
        busy: 1.into(),
        splits: Mutex::new(vec![split(30, 30, &[1, 2])].into()),
        streams: Mutex::new(
            vec![vec![announce(schema("b"), 15), boundary(15), rows("b", 20, &[1]), boundary(30)]].into(),
        ),
        ..Scripted::default()
    };
    world.run_source(source, false).await.unwrap();
    world.check("a", 2).await;
    world.check("b", 1).await;
}

#[tokio::test]
async fn a_table_whose_rows_cannot_be_read_is_taken_out_and_no_other() {
    let world = World::loading();
    let source = Scripted {
        head: 30,
        tables: vec![schema("a")],
        is_unloadable: true,
        streams: Mutex::new(
            vec![vec![announce(schema("b"), 15), boundary(15), rows("b", 20, &[1]), boundary(30)]].into(),
        ),
        ..Scripted::default()
    };
    let outcome = world.run_source(source, false).await.unwrap();
    assert_eq!(outcome.tables[0].stopped.as_deref(), Some("scripted"), "{outcome:?}");
    world.check("b", 1).await;
}

/// A job whose batches are of one row, and whose files are folded in pairs.
fn with_upkeep(every: Duration) -> World {
    let compact = Some(CompactConfig { every, small_files: 2, ..CompactConfig::DEFAULT });
    World { maintain: MaintainConfig { compact, ..MaintainConfig::default() }, batch_rows: 1, ..World::new() }
}

fn one_by_one(ids: std::ops::Range<i32>, offset: u64) -> Vec<Step> {
    let steps = ids.zip((offset..).step_by(10)).flat_map(|(id, at)| [rows("a", at, &[id]), boundary(at)]);
    steps.collect()
}

fn announced(steps: Vec<Step>) -> Vec<Step> {
    std::iter::once(announce(schema("a"), 5)).chain(steps).collect()
}

fn compacted(outcome: &RunOutcome) -> Option<&ChoreReport> {
    outcome.maintained.iter().find(|report| report.chore == Chore::Compact)
}

#[tokio::test]
async fn what_is_due_is_done_once_and_costs_no_row() {
    let mut world = with_upkeep(Duration::from_secs(3_600));
    let stream = announced(one_by_one(1..9, 10));
    let outcome = world.run(80, vec![stream]).await.unwrap();
    world.check("a", 8).await;
    let done = compacted(&outcome).expect("eight small files are folded");
    assert!(done.files_after < done.files_before && done.error.is_none(), "{done:?}");
    // The time of it is known to the next process.
    let outcome = world.run(160, vec![one_by_one(9..17, 90)]).await.unwrap();
    assert_eq!(compacted(&outcome), None);
    world.check("a", 16).await;
    world.clock = Arc::new(Later);
    let outcome = world.run(160, vec![]).await.unwrap();
    assert!(compacted(&outcome).is_some(), "{outcome:?}");
    world.check("a", 16).await;
}

/// Two hours from now.
struct Later;

impl Clock for Later {
    fn instant(&self) -> Instant {
        Instant::now()
    }

    fn unix_us(&self) -> i64 {
        crate::clock::SystemClock.unix_us() + 7_200_000_000
    }
}

#[tokio::test]
async fn a_run_that_follows_does_its_upkeep_between_batches() {
    let mut world = with_upkeep(Duration::from_secs(1));
    world.clock = Arc::new(Hasty::default());
    let mut stream = announced(one_by_one(1..41, 10));
    stream.push(Step::Fail(SourceErrorKind::Misconfigured));
    let source = Scripted { head: 400, streams: Mutex::new(vec![stream].into()), ..Scripted::default() };
    world.run_source(source, true).await.unwrap_err();
    world.check("a", 40).await;
    let files = world.lake.open_table(&id("a")).await.unwrap().unwrap().stats().files;
    assert!(files < 10, "{files} files of forty batches are left");
}

#[tokio::test]
async fn upkeep_that_fails_is_told_and_ends_no_run() {
    let world = with_upkeep(Duration::from_secs(3_600));
    let stream = announced(one_by_one(1..4, 10));
    world.run(30, vec![stream]).await.unwrap();
    let mut open = world.lake.open_table(&id("a")).await.unwrap().unwrap();
    open.checkpoint().await.unwrap();
    // A hole in the log, which vacuum must not reason about.
    let missing = object_store::path::Path::from("shop/a/_delta_log/00000000000000000001.json");
    world.lake.store().delete(&missing).await.unwrap();
    let world = World { clock: Arc::new(Tomorrow), ..world };
    let outcome = world.run(60, vec![one_by_one(4..7, 40)]).await.unwrap();
    world.check("a", 6).await;
    let told = outcome.maintained.iter().find(|report| report.chore == Chore::Vacuum).unwrap();
    assert!(told.error.as_ref().is_some_and(|error| error.contains("version 1 is missing")), "{told:?}");
}

/// A day and an hour from now: what is done once a day is due, and nothing is older than a week.
struct Tomorrow;

impl Clock for Tomorrow {
    fn instant(&self) -> Instant {
        Instant::now()
    }

    fn unix_us(&self) -> i64 {
        crate::clock::SystemClock.unix_us() + 90_000_000_000
    }
}
