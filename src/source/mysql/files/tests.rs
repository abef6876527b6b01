use std::path::Path;

use super::*;

/// Copies recorded logs of MySQL into a folder under new names; the second is what the first goes on in.
fn folder(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        std::fs::copy(recorded(), folder.path().join(name)).unwrap();
    }
    folder
}

fn recorded() -> String {
    format!("{}/tests/data/binlog/mysql-tagged.000001", env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path, names: &[&str]) -> BinlogFiles {
    let files = names.iter().map(|name| folder.join(name)).collect();
    BinlogFiles::new(BinlogFilesConfig { files, tables: TableFilter::new(["ty.*"]).unwrap() }, BTreeMap::new())
}

/// Inserts that come out, the text of the last boundary's position, and how the reading ended.
async fn read(source: &BinlogFiles, from: &ResumePoint) -> (usize, Option<ResumePoint>, Option<SourceError>) {
    let (mut rows, mut last) = (0, None);
    let mut stream = match source.stream(from, HashMap::new(), HashSet::new()).await {
        Ok(stream) => stream,
        Err(error) => return (0, None, Some(error)),
    };
    loop {
        match stream.next().await {
            Ok(Some(SourceEvent::Rows(batch))) => rows += batch.operations.len(),
            Ok(Some(SourceEvent::Boundary(boundary))) => last = Some(boundary.resume),
            Ok(Some(_)) => {}
            Ok(None) => return (rows, last, None),
            Err(error) => return (rows, last, Some(error)),
        }
    }
}

/// Reads the files from their start; `problem` is what the error must say, if there is to be one.
async fn check(folder: &Path, names: &[&str], rows: usize, problem: Option<(SourceErrorKind, &str)>) {
    let source = files(folder, names);
    let (found, _, error) = match source.start().await {
        Ok(start) => read(&source, &start).await,
        Err(error) => (0, None, Some(error)),
    };
    assert_eq!(found, rows, "{names:?}: {error:?}");
    match (error, problem) {
        (None, None) => {}
        (Some(error), Some((kind, words))) => {
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.message.contains(words), "{words:?} in {error}");
        }
        (error, problem) => panic!("{names:?}: {error:?} instead of {problem:?}"),
    }
}

#[tokio::test]
async fn files_are_read_in_the_order_of_their_numbers() {
    let folder = folder(&["binlog.000001", "binlog.000002"]);
    // The second file drops the table and makes it anew.
    check(folder.path(), &["binlog.000002", "binlog.000001"], 6, None).await;
}

#[tokio::test]
async fn a_missing_file_is_noticed() {
    let folder = folder(&["binlog.000001", "binlog.000003"]);
    let problem = Some((SourceErrorKind::Misconfigured, "goes on in binlog.000002"));
    check(folder.path(), &["binlog.000001", "binlog.000003"], 3, problem).await;
    check(folder.path(), &["binlog.000001", "binlog.000001"], 0, Some((SourceErrorKind::Misconfigured, "same number")))
        .await;
}

#[tokio::test]
async fn what_stands_before_the_cut_of_a_file_comes_before_the_error() {
    let folder = folder(&["binlog.000001"]);
    let path = folder.path().join("binlog.000001");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 60]).unwrap();
    check(folder.path(), &["binlog.000001"], 2, Some((SourceErrorKind::Corrupt, "is cut off"))).await;
}

#[tokio::test]
async fn what_is_no_readable_binlog_is_refused() {
    let folder = folder(&["binlog.000001"]);
    for (name, bytes, kind, words) in [
        ("a.000001", &b"\xfdbin and more"[..], SourceErrorKind::Misconfigured, "is encrypted"),
        ("b.000001", b"SELECT 1", SourceErrorKind::Corrupt, "is no binlog file"),
        ("c.000001", b"", SourceErrorKind::Corrupt, "is no binlog file"),
    ] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
        check(folder.path(), &[name], 0, Some((kind, words))).await;
    }
    let gone = files(folder.path(), &["d.000001"]);
    let (_, _, error) = read(&gone, &gone.start().await.unwrap()).await;
    assert!(error.unwrap().message.contains("d.000001 cannot be read"));
}

#[tokio::test]
async fn reading_goes_on_from_any_boundary() {
    let folder = folder(&["binlog.000001"]);
    let source = files(folder.path(), &["binlog.000001"]);
    let (_, end, _) = read(&source, &source.start().await.unwrap()).await;
    assert_eq!(end.as_ref().unwrap().position.text, "binlog.000002:4");
    assert_eq!(read(&source, &end.unwrap()).await.0, 0);
    // The end of the first row's transaction.
    let mut middle = source.start().await.unwrap();
    middle.position = SourcePosition { order: (1, 1015), text: "binlog.000001:1015".into() };
    let (rows, last, error) = read(&source, &middle).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!((rows, last.unwrap().gtid_set), (2, None), "ids before a position without a set are not known");
    let beyond = SourcePosition { order: (1, 99_999), text: "binlog.000001:99999".into() };
    let lost = source.check_held(&ResumePoint { position: beyond, gtid_set: None }).await.unwrap_err();
    assert_eq!(lost.kind, SourceErrorKind::Lost);
}

#[tokio::test]
async fn the_identity_is_the_first_files() {
    let folder = folder(&["binlog.000001", "binlog.000002"]);
    let one = files(folder.path(), &["binlog.000001"]).identity().await.unwrap();
    assert_eq!(files(folder.path(), &["binlog.000001", "binlog.000002"]).identity().await.unwrap(), one);
    let path = folder.path().join("binlog.000001");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_ne!(files(folder.path(), &["binlog.000001"]).identity().await.unwrap(), one);
}
