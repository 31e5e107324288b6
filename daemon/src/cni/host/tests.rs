use super::*;
use crate::cni::testing::key;

#[test]
fn what_is_of_another_boot_or_of_a_namespace_that_is_gone_is_swept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cni.redb");
    let boot = fs::read_to_string(BOOT_ID).unwrap().trim().to_owned();
    let mut journal = CniJournal::open(&path).unwrap();
    let mut put = |container: &str, boot: &str, netns: &str| {
        let record = AttachmentRecord {
            boot: boot.to_owned(),
            netns: netns.to_owned(),
            master: "eth0".into(),
            uses: Vec::new(),
            pod: None,
        };
        journal.put(key(container), record).unwrap();
    };
    put("earlier", "another", "/proc/7/ns/net");
    put("hidden", &boot, "/proc/0/ns/net");
    drop(journal);
    let mut host = HostState::open(&path, None, 200, None, CniBoard::default()).unwrap();
    assert_eq!(host.sweep(), []);
    assert_eq!(host.attachments("lan"), [key("hidden")].into());
}

/// Which boot a row of the address book is of says nothing where the row is older than the boot that it would be of now.
#[test]
fn an_epoch_is_new_in_the_boot_in_which_it_is_first_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cni.redb");
    let is_new = |epoch| {
        let host = HostState::open(&path, None, 200, epoch, CniBoard::default());
        host.unwrap().is_new_epoch()
    };
    assert!(!is_new(None), "the address book was never restored");
    assert!(is_new(Some(1)));
    assert!(is_new(Some(1)), "fipd was started again, not the host");
    let mut journal = CniJournal::open(&path).unwrap();
    journal.note_made("epoch/1", Some("another")).unwrap();
    drop(journal);
    assert!(!is_new(Some(1)));
    assert!(is_new(Some(2)));
    let journal = CniJournal::open(&path).unwrap();
    let noted = journal.made().keys().filter(|one| one.starts_with("epoch"));
    assert_eq!(noted.collect::<Vec<_>>(), ["epoch/2"]);
}

/// It would call deletions of this host's spool done, and VLANs of this host its own.
#[test]
fn the_journal_of_another_host_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cni.redb");
    let replayed = |digit: &str| {
        let host = HostId::of(&digit.repeat(32));
        let host = HostState::open(&path, host, 200, None, CniBoard::default());
        host.unwrap().replayed()
    };
    assert_eq!(replayed("a"), 0);
    let mut journal = CniJournal::open(&path).unwrap();
    journal.note_replayed(7, None).unwrap();
    journal.note_made("boot/there", Some("there")).unwrap();
    drop(journal);
    assert_eq!(replayed("a"), 7);
    let unknown = HostState::open(&path, None, 200, None, CniBoard::default()).unwrap();
    assert!(unknown.boots().contains("there"));
    drop(unknown);
    assert_eq!(replayed("b"), 0);
    let boots = CniJournal::open(&path).unwrap().made().clone();
    assert!(!boots.contains_key("boot/there"), "{boots:?}");
    assert!(folder.path().join("cni.of-another-host").exists());
}

#[test]
fn boots_of_the_host_are_noted_and_not_too_many() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cni.redb");
    let mut journal = CniJournal::open(&path).unwrap();
    for boot in ["one", "two"] {
        let expected = notes::boots(&mut journal, boot).unwrap();
        assert!(expected.contains(boot) && expected.contains("one"));
    }
    for number in 0..=100 {
        let made = format!("boot/{number}");
        journal.note_made(&made, Some("earlier")).unwrap();
    }
    let boots = notes::boots(&mut journal, "two").unwrap();
    assert_eq!((boots.len(), boots.contains("two")), (100, true));
    assert_eq!(notes::boots(&mut journal, "two").unwrap(), boots);
}

/// Otherwise it would lose what it uses with the user that the journal knew of.
#[test]
fn a_user_that_a_failed_write_left_in_the_file_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cni.redb");
    let mut host = HostState::open(&path, None, 200, None, CniBoard::default()).unwrap();
    let thing = promiscuity("none0");
    let boot = host.boot.clone();
    let record = AttachmentRecord {
        boot: boot.clone(),
        netns: "/proc/0/ns/net".into(),
        master: "none0".into(),
        uses: vec![HostUse::Promiscuous("none0".into())],
        pod: None,
    };
    host.journal.put(key("a"), record.clone()).unwrap();
    host.journal.note_made(&thing, Some(&boot)).unwrap();
    host.journal.close();
    let mut written = CniJournal::open(&path).unwrap();
    written.put(key("b"), record).unwrap();
    drop(written);
    host.release(&[key("a")].into()).unwrap();
    assert_eq!(host.attachments("lan"), [key("b")].into());
    assert!(host.has_made(&thing));
    host.release(&[key("b")].into()).unwrap();
    assert!(!host.has_made(&thing));
}
