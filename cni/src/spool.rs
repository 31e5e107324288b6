//! Questions that nobody answered, kept until the daemon has replayed them.
//!
//! The plugin writes and deletes as root; the daemon only reads, and tells in its answers how far it came. Numbers only rise,
//! across restarts of either.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown,
    },
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{Ask, MAX_MESSAGE};

/// Where the spool is, unless a configuration says otherwise.
pub const SPOOL: &str = "/var/lib/fipd-cni/spool";
/// The most entries.
pub const MOST: usize = 10_000;
/// Entries that are read at once.
pub const AT_ONCE: usize = 100;
/// Members of this group may read.
const GROUP: &str = "fipd";
/// Held while the spool changes.
const LOCK: &str = "lock";
/// The highest number that was ever given.
const SEQUENCE: &str = "sequence";
const DIRECTORY_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;

/// Why a question is not kept.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("{} has {MOST} entries; start fipd, which empties it", .0.display())]
    Full(PathBuf),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What an entry holds.
#[derive(Debug)]
pub enum Entry {
    Ask(Box<Ask>),
    /// It cannot be read, and why.
    Malformed(String),
}

/// Keeps a question. Returns its number, once it is on disk.
///
/// # Errors
/// When the spool is full or the disk fails.
pub fn write(directory: &Path, ask: &Ask) -> Result<u64, SpoolError> {
    let group = group(&groups());
    create(directory, group)?;
    let _lock = lock(directory)?;
    let entries = numbers(directory)?;
    if entries.len() >= MOST {
        return Err(SpoolError::Full(directory.to_owned()));
    }
    let highest = entries.last_key_value().map_or(0, |(number, _)| *number);
    let last = match highest.max(sequence(directory)) {
        0 => before_first(),
        last => last,
    };
    let number = last
        .checked_add(1)
        .ok_or_else(|| io::Error::other("its numbers are used up; move it away"))?;
    // First: a number that was given is never given again.
    put(directory, SEQUENCE, number.to_string().as_bytes(), group)?;
    let text = serde_json::to_vec(ask).map_err(io::Error::from)?;
    put(directory, &name(number), &text, group)?;
    File::open(directory)?.sync_all()?;
    Ok(number)
}

/// The first entries behind a number, in order, at most [`AT_ONCE`]. A directory that is not there is empty.
///
/// # Errors
/// When the directory or a file cannot be read.
pub fn entries_after(directory: &Path, number: u64) -> io::Result<Vec<(u64, Entry)>> {
    let mut behind = numbers(directory)?;
    behind.retain(|one, _| *one > number);
    let entries = behind.into_iter().take(AT_ONCE);
    let read = entries.map(|(number, path)| Ok(read(&path)?.map(|entry| (number, entry))));
    read.filter_map(Result::transpose).collect()
}

/// Deletes the entries up to a number.
///
/// # Errors
/// When the disk fails, or the number was never given: whoever says so has not read this spool.
pub fn discard(directory: &Path, up_to: u64) -> io::Result<()> {
    let entries = numbers(directory)?;
    let last = sequence(directory);
    if up_to <= last && entries.range(..=up_to).next().is_none() {
        return Ok(());
    }
    let highest = entries.last_key_value().map_or(last, |(one, _)| *one);
    // One that was lost begins behind what is replayed, also where the clock was ahead once.
    let is_lost = last == 0 && entries.is_empty() && up_to < u64::MAX / 2;
    if !is_lost && up_to > last.max(highest).max(most_before_loss()) {
        let why = format!("fipd says that it has replayed {up_to}, a number that was never given");
        return Err(io::Error::other(why));
    }
    create(directory, group(&groups()))?;
    let _lock = lock(directory)?;
    if up_to > sequence(directory) {
        // The file was lost: numbers from the start again would pass for replayed.
        put(directory, SEQUENCE, up_to.to_string().as_bytes(), None)?;
    }
    for (_, path) in numbers(directory)?.range(..=up_to) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// How many entries there are. A directory that is not there has none.
///
/// # Errors
/// When the directory cannot be read.
pub fn count(directory: &Path) -> io::Result<usize> {
    Ok(numbers(directory)?.len())
}

fn name(number: u64) -> String {
    format!("{number:020}.json")
}

/// The paths of the entries by their numbers.
fn numbers(directory: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
    let found = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        found => found?,
    };
    let mut numbers = BTreeMap::new();
    for file in found {
        let path = file?.path();
        let number = path.file_name().and_then(|name| number(name.to_str()?));
        numbers.extend(number.map(|number| (number, path)));
    }
    Ok(numbers)
}

fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json")?;
    let number = digits.parse().ok()?;
    (self::name(number) == name).then_some(number)
}

/// `None`: it was deleted meanwhile.
fn read(path: &Path) -> io::Result<Option<Entry>> {
    let text = File::open(path).and_then(|file| {
        let mut text = Vec::new();
        file.take(MAX_MESSAGE + 1).read_to_end(&mut text)?;
        Ok(text)
    });
    Ok(Some(match text {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(text) if text.len() as u64 > MAX_MESSAGE => {
            Entry::Malformed(format!("longer than {MAX_MESSAGE} bytes"))
        }
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(ask) => Entry::Ask(Box::new(ask)),
            Err(error) => Entry::Malformed(error.to_string()),
        },
    }))
}

/// What a new spool counts from: the time. An earlier one that was lost has given lower numbers, which the daemon takes for replayed.
fn before_first() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since.map(|since| u64::try_from(since.as_millis()));
    millis.map_or(0, |millis| millis.unwrap_or(0))
}

/// More than a spool that was lost has given: it counted from an earlier time, and less than one a millisecond.
fn most_before_loss() -> u64 {
    let room = u64::try_from(MOST).unwrap_or(u64::MAX);
    before_first().saturating_add(room)
}

/// 0 where it is missing or malformed.
fn sequence(directory: &Path) -> u64 {
    let text = fs::read_to_string(directory.join(SEQUENCE));
    text.ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// Makes the directory, on disk, and lets the group read it: one that died before that left it to root alone.
fn create(directory: &Path, group: Option<u32>) -> io::Result<()> {
    if !directory.is_dir() {
        let parent = directory.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent)?;
        match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result?,
        }
        File::open(parent)?.sync_all()?;
    }
    let there = fs::metadata(directory)?;
    if group.is_some_and(|group| group != there.gid()) {
        chown(directory, None, group)?;
    }
    // The umask may have taken some of it.
    if there.mode() & DIRECTORY_MODE != DIRECTORY_MODE {
        fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))?;
    }
    Ok(())
}

/// Released when the file is closed.
fn lock(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(directory.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

/// Writes a file whole or not at all. A crash leaves at most `.new`, which the next one overwrites.
fn put(directory: &Path, name: &str, text: &[u8], group: Option<u32>) -> io::Result<()> {
    let new = directory.join(".new");
    let mut file = File::create(&new)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    chown(&new, None, group)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(new, directory.join(name))
}

fn groups() -> String {
    fs::read_to_string("/etc/group").unwrap_or_default()
}

/// The number of [`GROUP`] in the text of `/etc/group`. The C library's look-up is not for static programs.
fn group(text: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(GROUP);
        is_it.then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::{AskStep, Verb};

    fn ask(container: &str) -> Ask {
        Ask {
            command: Verb::Del,
            step: AskStep::Begin,
            container_id: container.into(),
            netns: String::new(),
            ifname: "eth1".into(),
            args: String::new(),
            version: String::new(),
            addresses: Vec::new(),
            config: RawValue::from_string("{}".into()).unwrap(),
        }
    }

    /// As one leaves it that died between its two steps.
    #[test]
    fn a_directory_that_the_group_cannot_read_is_repaired() {
        let folder = tempfile::tempdir().unwrap();
        let spool = folder.path().join("a/spool");
        fs::create_dir_all(&spool).unwrap();
        fs::set_permissions(&spool, Permissions::from_mode(0o700)).unwrap();
        write(&spool, &ask("c")).unwrap();
        let mode = fs::metadata(&spool).unwrap().mode() & 0o777;
        assert_eq!(mode, DIRECTORY_MODE);
        assert_eq!(containers(&spool, 0).len(), 1);
    }

    fn containers(directory: &Path, after: u64) -> Vec<(u64, String)> {
        let entries = entries_after(directory, after).unwrap().into_iter();
        let text = |entry| match entry {
            Entry::Ask(ask) => ask.container_id,
            Entry::Malformed(_) => "malformed".into(),
        };
        entries
            .map(|(number, entry)| (number, text(entry)))
            .collect()
    }

    #[test]
    fn questions_are_kept_in_order_until_they_are_discarded() {
        let dir = tempfile::tempdir().unwrap();
        let spool = dir.path().join("lib/spool");
        assert_eq!(containers(&spool, 0), []);
        discard(&spool, 0).unwrap();
        assert!(!spool.exists());
        let first = write(&spool, &ask("a")).unwrap();
        assert!(first > 1_000 * MOST as u64, "a lost spool gave lower ones");
        let [second, third] = [first + 1, first + 2];
        for (number, container) in [(second, "b"), (third, "c")] {
            assert_eq!(write(&spool, &ask(container)).unwrap(), number);
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&spool), 0o750);
        assert_eq!(mode(&spool.join(name(second))), 0o640);
        let left = [(second, "b".into()), (third, "c".into())];
        assert_eq!(containers(&spool, first), left);
        discard(&spool, second).unwrap();
        assert_eq!(containers(&spool, 0), [(third, "c".into())]);
        discard(&spool, third).unwrap();
        let fourth = write(&spool, &ask("d")).unwrap();
        assert_eq!(fourth, third + 1, "numbers only rise");
        fs::remove_file(spool.join(SEQUENCE)).unwrap();
        discard(&spool, fourth + 5).unwrap();
        assert_eq!(write(&spool, &ask("e")).unwrap(), fourth + 6);
    }

    #[test]
    fn a_lost_spool_goes_on_behind_what_was_replayed() {
        let dir = tempfile::tempdir().unwrap();
        let spool = dir.path().join("spool");
        discard(&spool, 7).unwrap();
        assert_eq!(write(&spool, &ask("a")).unwrap(), 8);
    }

    #[test]
    fn what_was_never_given_is_not_discarded() {
        let dir = tempfile::tempdir().unwrap();
        let spool = dir.path().join("spool");
        assert!(discard(&spool, u64::MAX).is_err());
        assert!(!spool.exists());
        let number = write(&spool, &ask("a")).unwrap();
        for up_to in [number + 100 * MOST as u64, u64::MAX] {
            let error = discard(&spool, up_to).unwrap_err();
            assert!(error.to_string().contains("never given"), "{error}");
            assert_eq!(containers(&spool, 0), [(number, "a".into())]);
        }
        assert_eq!(write(&spool, &ask("b")).unwrap(), number + 1);
    }

    #[test]
    fn a_number_is_not_given_twice_where_none_is_left() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(SEQUENCE), u64::MAX.to_string()).unwrap();
        let error = write(dir.path(), &ask("a")).unwrap_err();
        assert!(error.to_string().contains("used up"), "{error}");
        assert_eq!(containers(dir.path(), 0), []);
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_an_error_and_not_malformed() {
        let dir = tempfile::tempdir().unwrap();
        let number = write(dir.path(), &ask("a")).unwrap();
        fs::create_dir(dir.path().join(name(number + 1))).unwrap();
        assert!(entries_after(dir.path(), 0).is_err());
        assert_eq!(count(dir.path()).unwrap(), 2);
    }

    #[test]
    fn what_a_crash_leaves_and_what_is_malformed_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let spool = dir.path();
        fs::write(spool.join(".new"), "half").unwrap();
        fs::write(spool.join(SEQUENCE), "x").unwrap();
        fs::write(spool.join("7.json"), "{}").unwrap();
        fs::write(spool.join(name(5)), "{").unwrap();
        let long = vec![b' '; usize::try_from(MAX_MESSAGE).unwrap() + 1];
        fs::write(spool.join(name(6)), long).unwrap();
        assert_eq!(write(spool, &ask("a")).unwrap(), 7);
        let malformed = || "malformed".to_owned();
        let expected = [(5, malformed()), (6, malformed()), (7, "a".into())];
        assert_eq!(containers(spool, 0), expected);
    }

    #[test]
    fn a_full_spool_refuses() {
        let dir = tempfile::tempdir().unwrap();
        for number in 1..=MOST as u64 {
            fs::write(dir.path().join(name(number)), "{}").unwrap();
        }
        let error = write(dir.path(), &ask("a")).unwrap_err();
        assert!(matches!(error, SpoolError::Full(_)), "{error}");
        discard(dir.path(), 1).unwrap();
        assert_eq!(write(dir.path(), &ask("a")).unwrap(), MOST as u64 + 1);
    }

    #[test]
    fn writers_at_once_get_numbers_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let spool = dir.path().join("spool");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| write(&spool, &ask("a")).unwrap());
            }
        });
        let numbers: Vec<_> = containers(&spool, 0).into_iter().map(|(n, _)| n).collect();
        let first = numbers[0];
        assert_eq!(numbers, (first..first + 8).collect::<Vec<_>>());
    }

    #[test]
    fn the_group_is_read_from_its_file() {
        assert_eq!(group("root:x:0:\nfipd:x:998:web\n"), Some(998));
        assert_eq!(group("root:x:0:\nfipd-x:x:998:\nfipd:x\n"), None);
    }
}
