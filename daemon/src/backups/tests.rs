use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::store;

const DAY: Duration = Duration::from_secs(86_400);

fn schedule(directory: PathBuf) -> Schedule {
    Schedule {
        directory,
        every: Some(DAY),
        keep: 2,
    }
}

fn site() -> (tempfile::TempDir, Ipam, Backups) {
    let dir = tempfile::tempdir().unwrap();
    let (ipam, _writer) = Ipam::start(&dir.path().join("data"), Arc::new(clock::now)).unwrap();
    let backups = Backups::new(ipam.clone(), schedule(dir.path().join("data/backups")));
    (dir, ipam, backups)
}

fn names(backups: &Backups) -> Vec<String> {
    let copies = backups.list().unwrap();
    copies.into_iter().map(|copy| copy.name).collect()
}

#[test]
fn a_name_tells_when_the_copy_was_made() {
    let at = Timestamp(1_767_225_600_123);
    assert_eq!(name(at), "fipd-20260101T000000.123Z.redb");
    assert_eq!(created(&name(at)), Some(at));
    for other in [
        "",
        "fipd.redb",
        "fipd-.redb",
        "fipd-20260101T000000.123Z.redb.partial",
        "fipd-20260101T000000Z.redb",
        "fipd-20261301T000000.123Z.redb",
        "../fipd-20260101T000000.123Z.redb",
        "fipd-2026é101T000000.123Z.redb",
    ] {
        assert_eq!(created(other), None, "{other}");
    }
}

#[test]
fn the_next_copy_is_due_when_the_last_is_old_or_of_no_known_age() {
    let at = |hours: u64| Timestamp(hours * 3_600_000);
    assert_eq!(left(at(100), None, DAY), Duration::ZERO);
    assert_eq!(left(at(100), Some(at(76)), DAY), Duration::ZERO);
    assert_eq!(left(at(100), Some(at(1)), DAY), Duration::ZERO);
    assert_eq!(left(at(100), Some(at(77)), DAY), Duration::from_secs(3_600));
    assert_eq!(left(at(100), Some(at(101)), DAY), Duration::ZERO);
}

#[tokio::test]
async fn copies_of_a_clock_that_was_ahead_do_not_push_out_a_new_one() {
    let (_dir, _ipam, backups) = site();
    let ahead = |days: u64| name(Timestamp(clock::now().0 + days * 86_400_000));
    fs::create_dir_all(&backups.schedule().directory).unwrap();
    for days in [30, 40] {
        fs::write(backups.schedule().directory.join(ahead(days)), "").unwrap();
    }
    let first = backups.make().unwrap().name;
    std::thread::sleep(Duration::from_millis(2));
    let second = backups.make().unwrap().name;
    assert_eq!(names(&backups), [second, first]);
}

#[tokio::test]
async fn copies_are_private_whole_and_as_many_as_told() {
    let (_dir, _ipam, backups) = site();
    assert_eq!(backups.list().unwrap(), []);
    assert_eq!(backups.standing(), BackupStatus::default());
    let mut made = Vec::new();
    for _ in 0..4 {
        let copy = backups.make().unwrap();
        assert_eq!(backups.standing().last, Some(copy.created));
        made.insert(0, copy.name);
        // The next one must have another name.
        std::thread::sleep(Duration::from_millis(2));
    }
    made.truncate(2);
    assert_eq!(names(&backups), made);
    let path = backups.path(&made[0]).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert!(store::check(&path).unwrap().is_empty());
    assert_eq!(backups.path("fipd-20260101T000000.123Z.redb"), None);
    let again = Backups::new(backups.0.ipam.clone(), backups.schedule().clone());
    assert_eq!(again.standing().last, backups.standing().last);
}

#[tokio::test]
async fn what_fails_is_told_and_removes_nothing() {
    let (dir, ipam, backups) = site();
    backups.make().unwrap();
    let kept = names(&backups);
    let directory = &backups.schedule().directory.clone();
    fs::write(directory.join("fipd-x.redb.partial"), "half").unwrap();
    fs::write(directory.join("notes.txt"), "mine").unwrap();
    ipam.shutdown().await;
    let error = backups.make().unwrap_err().to_string();
    let (_, told) = backups.standing().failure.unwrap();
    assert_eq!(told, error);
    assert_eq!(names(&backups), kept);
    let left = fs::read_dir(directory).unwrap().count();
    assert_eq!(left, 2, "half a copy is gone, and what is another's stays");

    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let nowhere = Backups::new(ipam, schedule(file.join("backups")));
    let error = nowhere.make().unwrap_err();
    assert!(matches!(error, CopyError::Io { .. }), "{error}");
}

#[tokio::test]
async fn one_copy_is_made_at_a_time() {
    let (_dir, _ipam, backups) = site();
    let turn = backups.0.turn.lock();
    let other = backups.clone();
    let busy = std::thread::spawn(move || matches!(other.make(), Err(CopyError::Busy)));
    assert!(busy.join().unwrap());
    drop(turn);
    assert_eq!(backups.standing().failure, None);
    backups.make().unwrap();
}

#[tokio::test]
async fn a_drill_says_whether_a_copy_can_be_restored_and_goes_with_it() {
    let (_dir, _ipam, backups) = site();
    let copy = backups.make().unwrap();
    assert_eq!(copy.drill, None);
    let drill = backups.drill(&copy.name).unwrap();
    assert_eq!(drill.problems, Vec::<String>::new());
    let listed = backups.list().unwrap();
    assert_eq!(listed[0].drill, Some(drill));
    let directory = backups.schedule().directory.clone();
    assert!(!directory.join("drill").exists(), "the trial is left");

    let path = directory.join(&copy.name);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let drill = backups.drill(&copy.name).unwrap();
    assert!(!drill.problems.is_empty(), "half a copy");
    assert_eq!(backups.list().unwrap()[0].drill, Some(drill));
    fs::write(&path, &bytes).unwrap();
    let error = backups.drill("fipd-20260101T000000.123Z.redb").unwrap_err();
    assert!(matches!(error, CopyError::Unknown(_)), "{error}");
    assert!(backups.drill("../data/fipd.redb").is_err());

    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(2));
        backups.make().unwrap();
    }
    let names = fs::read_dir(&directory).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|name| name.starts_with(&copy.name)).collect();
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn one_copy_is_lent_at_a_time_and_goes_when_it_was_read() {
    let (dir, _ipam, backups) = site();
    let data = dir.path().join("data");
    let temporary = backups.make_temporary(&data).unwrap();
    let path = temporary.path().to_owned();
    assert!(path.is_file());
    assert!(matches!(
        backups.make_temporary(&data),
        Err(CopyError::Busy)
    ));
    drop(temporary);
    assert!(!path.exists());
    drop(backups.make_temporary(&data).unwrap());
}

#[test]
fn what_an_end_in_the_middle_left_is_swept() {
    let dir = tempfile::tempdir().unwrap();
    let left = ["backup-00000000000000ff.tmp", "backup-7.tmp.partial"];
    let others = ["fipd.redb", "backup-7.txt", "my.tmp"];
    for name in left.iter().chain(&others) {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    Backups::sweep_lent(dir.path());
    for name in left {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
    for name in others {
        assert!(dir.path().join(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn nothing_is_lent_where_there_is_no_room() {
    let (_dir, _ipam, backups) = site();
    // It has no blocks at all.
    let problem = backups.make_temporary(Path::new("/proc")).unwrap_err();
    assert!(matches!(problem, CopyError::Full { .. }), "{problem}");
}
