//! One flipped bit anywhere in a store: it is refused, or it does no harm.

use std::{
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use fipd_core::{Authority as _, Decision, Op, Outcome};

use super::{
    history::Dice,
    rounds,
    upgrade::{everything, lease_of},
};
use crate::store::{Store, StoreOptions, check, inspect::inspect};

/// What of the first page redb uses.
const HEADER: usize = 320;
const PAGE: usize = 4096;

/// A data directory as it was at one moment, and the rows that were answered by then.
struct Image {
    files: Vec<(PathBuf, Vec<u8>)>,
    rows: Vec<Op>,
}

impl Image {
    fn take(dir: &Path, rows: &[Op]) -> Self {
        let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
        let files = files.filter(|entry| entry.file_type().unwrap().is_file());
        let file =
            |entry: fs::DirEntry| (entry.file_name().into(), fs::read(entry.path()).unwrap());
        Self {
            files: files.map(file).collect(),
            rows: rows.to_vec(),
        }
    }

    /// Puts the files into `dir`, the store with one bit flipped; says which.
    fn put(&self, dir: &Path, dice: &mut Dice) -> String {
        let mut flipped = None;
        for (name, bytes) in &self.files {
            let mut bytes = bytes.clone();
            if name == Path::new(STORE) {
                let at = target(&bytes, dice);
                let bit = dice.below(8);
                bytes[at] ^= 1 << bit;
                flipped = Some(format!("bit {bit} of byte {at} of {}", bytes.len()));
            }
            fs::write(dir.join(name), bytes).unwrap();
        }
        flipped.unwrap()
    }
}

const STORE: &str = "fipd.redb";

/// A byte of the header, or of a page that has something in it: most of a small file is air.
fn target(bytes: &[u8], dice: &mut Dice) -> usize {
    let any = |dice: &mut Dice, below: usize| dice.below(below as u64) as usize;
    if dice.below(4) == 0 {
        return any(dice, HEADER);
    }
    let used = |page: &usize| bytes[page * PAGE..][..PAGE].iter().any(|byte| *byte != 0);
    let pages: Vec<_> = (0..bytes.len() / PAGE).filter(used).collect();
    pages[any(dice, pages.len())] * PAGE + any(dice, PAGE)
}

fn decision(ops: Vec<Op>) -> Decision {
    Decision {
        ops,
        audit: Vec::new(),
    }
}

/// A store that was killed, and the same after it was closed.
fn images() -> [Image; 2] {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions {
        ballast: 0,
        ..StoreOptions::default()
    };
    let (mut store, mut loaded) = Store::open(&dir.path().join(STORE), options.clone()).unwrap();
    let mut batches = vec![everything()];
    // So many that the table has branches.
    for part in 0..4_u8 {
        let leases = (10..200).map(|last| lease_of([10, 60, part, last]));
        batches.push(leases.collect());
    }
    for ops in batches {
        assert_eq!(store.commit(&[decision(ops)]), [Outcome::Committed]);
    }
    // The record is of the epoch that the file had when it was opened.
    drop(store);
    let (mut store, _) = Store::open(&dir.path().join(STORE), options.clone()).unwrap();
    let last = vec![lease_of([10, 60, 9, 9])];
    assert_eq!(store.commit(&[decision(last)]), [Outcome::Committed]);
    let killed = Image::take(dir.path(), &[]);
    drop(store);
    loaded.ledger = Store::open(&dir.path().join(STORE), options.clone())
        .unwrap()
        .1
        .ledger;
    let rows: Vec<_> = loaded.ledger.dump().collect();
    let clean = Image::take(dir.path(), &rows);
    [Image { rows, ..killed }, clean]
}

#[test]
fn a_flipped_bit_is_refused_or_harmless() {
    let rounds = rounds("FIPD_FLIP_ROUNDS", 50);
    let images = images();
    let (mut refused, mut harmless, mut held) = (0, 0, 0);
    for round in 0..rounds {
        let mut dice = Dice::new(round);
        let image = &images[dice.below(2) as usize];
        let dir = tempfile::tempdir().unwrap();
        let what = image.put(dir.path(), &mut dice);
        let path = dir.path().join(STORE);
        let before = fs::read(&path).unwrap();
        let checked = catch_unwind(|| check(&path));
        assert!(checked.is_ok(), "round {round}, {what}: the check panics");
        assert!(
            fs::read(&path).unwrap() == before,
            "round {round}, {what}: the check writes"
        );
        match Store::open(
            &path,
            StoreOptions {
                ballast: 0,
                ..StoreOptions::default()
            },
        ) {
            Err(error) => {
                refused += 1;
                let line = error.to_string();
                assert!(!line.contains('\n'), "round {round}, {what}: {line}");
            }
            Ok((store, loaded)) => {
                let same = loaded.ledger.dump().eq(image.rows.iter().cloned());
                let holds = loaded
                    .ledger
                    .epoch()
                    .is_some_and(|epoch| epoch.number > 2 && epoch.hold.is_some());
                assert!(
                    same || holds,
                    "round {round}, {what}: other rows without a hold"
                );
                harmless += u64::from(same);
                held += u64::from(!same);
                drop(store);
            }
        }
    }
    println!("{refused} refused, {harmless} harmless, {held} held");
    assert!(
        refused > rounds / 4 && harmless > 0,
        "{refused} refused, {harmless} harmless"
    );
}

/// The pages of a clean store were looked at only by an offline check before.
#[test]
fn a_clean_start_reads_every_page() {
    let [_, clean] = images();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(STORE);
    let (_, bytes) = clean
        .files
        .iter()
        .find(|(name, _)| name == Path::new(STORE))
        .unwrap();
    let text = b"entry-of-the-lease-10.60.0.123";
    let at = bytes
        .windows(text.len())
        .position(|part| part == text)
        .unwrap();
    let mut bytes = bytes.clone();
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = Store::open(&path, StoreOptions::default())
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(error.contains("restore a backup"), "{error}");
    assert!(
        fs::read(&path).unwrap() == bytes,
        "a refusal writes nothing"
    );
}

/// Of a store that was killed redb would go back to the commit before, as it does after a torn one.
#[test]
fn a_damaged_commit_that_was_answered_is_refused() {
    let [killed, _] = images();
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in &killed.files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    let path = dir.path().join(STORE);
    let mut bytes = fs::read(&path).unwrap();
    // Only the last commit has a page with its lease.
    let text = b"entry-of-the-lease-10.60.9.9";
    let at = bytes
        .windows(text.len())
        .position(|part| part == text)
        .unwrap();
    bytes[at] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = Store::open(&path, StoreOptions::default())
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("is damaged, and decisions up to it were answered"),
        "{error}"
    );
    assert_eq!(check(&path).unwrap().len(), 1);
    assert!(
        fs::read(&path).unwrap() == bytes,
        "a refusal writes nothing"
    );
    // Without the record it is a store whose last commit was torn: it starts, and holds.
    fs::remove_file(dir.path().join("fipd.redb.high-water")).unwrap();
    let (_, loaded) = Store::open(&path, StoreOptions::default()).unwrap();
    assert!(
        loaded
            .ledger
            .epoch()
            .is_some_and(|epoch| epoch.hold.is_some())
    );
}

#[test]
fn a_panic_over_a_damaged_file_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(STORE);
    drop(Store::open(&path, StoreOptions::default()).unwrap());
    let error = inspect::<()>(&path, |_| panic!("as redb does")).unwrap_err();
    let line = error.to_string();
    assert!(
        line.contains("restore a backup") && !line.contains('\n'),
        "{line}"
    );
    Store::open(&path, StoreOptions::default()).unwrap();
}

#[test]
fn pages_are_checked_while_the_store_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(STORE);
    let (mut store, _) = Store::open(&path, StoreOptions::default()).unwrap();
    let leases = (10..200).map(|last| lease_of([10, 60, 0, last]));
    let mut ops = everything();
    ops.extend(leases);
    assert_eq!(store.commit(&[decision(ops)]), [Outcome::Committed]);
    let reader = store.reader();
    let (ledger, problems) = reader.verify().unwrap();
    assert!(problems.is_empty() && ledger.is_some(), "{}", problems[0]);
    // Beside a writer that goes on.
    let writer = std::thread::spawn(move || {
        for last in 0..200 {
            let ops = vec![lease_of([10, 60, 9, last])];
            assert_eq!(store.commit(&[decision(ops)]), [Outcome::Committed]);
        }
        store
    });
    while !writer.is_finished() {
        let (_, problems) = reader.verify().unwrap();
        assert!(problems.is_empty(), "{}", problems[0]);
    }
    let _store = writer.join().unwrap();
    // Behind the back of redb, which has the page in memory.
    let mut bytes = fs::read(&path).unwrap();
    let text = b"entry-of-the-lease-10.60.0.123";
    let places = bytes.windows(text.len()).enumerate();
    let places: Vec<_> = places
        .filter(|(_, part)| *part == text)
        .map(|(at, _)| at)
        .collect();
    for at in places {
        bytes[at] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    let (_, problems) = reader.verify().unwrap();
    let found: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert!(found.iter().any(|line| line.contains("pages")), "{found:?}");
}
