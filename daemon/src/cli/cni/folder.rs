//! Changes of files in one directory that its runtime reads at any time: each file is there as a whole, before and after.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt as _, fchown},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{self, AtFlags, FlockOperation, Mode, OFlags, XattrFlags},
    io::Errno,
};

use crate::cli::exit::Failure;

/// The longest file that is read, in bytes. Plugins of others are up to 60 MB.
const LONGEST: u64 = 256 << 20;
/// The extended attribute of SELinux.
const LABEL: &str = "security.selinux";
/// The longest label, in bytes.
const LONGEST_LABEL: usize = 4_096;

/// A directory that only its owner can change.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    descriptor: OwnedFd,
    /// Who has the files.
    owner: u32,
    label: &'static str,
}

/// A regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing {
    pub bytes: Vec<u8>,
    mode: u32,
    owner: u32,
}

impl Folder {
    /// Opens a directory of `owner`.
    ///
    /// # Errors
    /// It is not there, a symbolic link, or others can change what is in it.
    pub fn open(path: &Path, owner: u32) -> Result<Self, Failure> {
        // Without a slash at its end, which would have a symbolic link followed.
        let path: PathBuf = path.components().collect();
        let shown = path.display();
        let meta = std::fs::symlink_metadata(&path).map_err(|error| missing(&path, &error))?;
        if meta.is_symlink() {
            let to = std::fs::canonicalize(&path).unwrap_or_default();
            return Err(Failure::Input(format!(
                "{shown} is a symbolic link; name the directory itself: {}",
                to.display()
            )));
        }
        if !meta.is_dir() {
            return Err(Failure::Input(format!("{shown} is not a directory")));
        }
        let whole = std::fs::canonicalize(&path).map_err(|error| missing(&path, &error))?;
        for (depth, folder) in whole.ancestors().enumerate() {
            let meta =
                std::fs::symlink_metadata(folder).map_err(|error| missing(folder, &error))?;
            if let Some(why) = unsafe_for(owner, meta.uid(), meta.mode(), depth > 0) {
                return Err(Failure::Failed(format!(
                    "{} {why}: others could exchange the plugin, which runs as root",
                    folder.display()
                )));
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor =
            fs::open(&path, flags, Mode::empty()).map_err(|error| missing(&path, &error.into()))?;
        Ok(Self {
            path,
            descriptor,
            owner,
            label: LABEL,
        })
    }

    /// Keeps other commands from changing it for as long as this is there.
    pub fn lock(&self) -> Result<(), Failure> {
        match fs::flock(&self.descriptor, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(Failure::Failed(format!(
                "another program has locked {}; try again",
                self.path.display()
            ))),
            locked => locked.map_err(|error| self.failed("", error)),
        }
    }

    /// The path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Names of all that is in it, sorted.
    pub fn names(&self) -> Result<Vec<String>, Failure> {
        let failed = |error| self.failed("", error);
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.descriptor).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }

    /// The file of this name; `None`: there is none.
    ///
    /// # Errors
    /// It cannot be read, or is no regular file.
    pub fn read(&self, name: &str) -> Result<Option<Existing>, Failure> {
        let Some(file) = self.open_file(name)? else {
            return Ok(None);
        };
        let meta = file.metadata().map_err(|error| self.failed(name, error))?;
        let mut bytes = Vec::new();
        let read = file.take(LONGEST + 1).read_to_end(&mut bytes);
        read.map_err(|error| self.failed(name, error))?;
        if bytes.len() as u64 > LONGEST {
            return Err(self.failed(name, "it is longer than 256 MiB"));
        }
        Ok(Some(Existing {
            bytes,
            mode: meta.mode() & 0o7777,
            owner: meta.uid(),
        }))
    }

    /// Whether the file is as [`Self::put`] would leave it.
    pub fn has(&self, existing: Option<&Existing>, bytes: &[u8], mode: u32) -> bool {
        existing
            .is_some_and(|one| one.bytes == bytes && one.mode == mode && one.owner == self.owner)
    }

    /// Puts a file in the place of the one that has this name, if any, with that one's SELinux label, or else with that of the
    /// other files. It is on the disk afterwards.
    pub fn put(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), Failure> {
        let label = self.label_for(name)?;
        // Runtimes read no file that ends like this.
        let fresh = format!(".{name}.fipd-new");
        let written = self.write(&fresh, bytes, mode, label.as_deref());
        let moved = written.and_then(|()| {
            let moved = fs::renameat(&self.descriptor, &fresh, &self.descriptor, name);
            moved.map_err(|error| self.failed(name, error))
        });
        if moved.is_err() {
            let _may_not_be_there = fs::unlinkat(&self.descriptor, &fresh, AtFlags::empty());
        }
        moved?;
        self.sync()
    }

    /// Gives a file a second name.
    pub fn keep(&self, name: &str, second: &str) -> Result<(), Failure> {
        let to = &self.descriptor;
        fs::linkat(to, name, to, second, AtFlags::empty())
            .map_err(|error| self.failed(second, error))?;
        self.sync()
    }

    /// Moves a file in the place of another.
    pub fn replace(&self, from: &str, name: &str) -> Result<(), Failure> {
        fs::renameat(&self.descriptor, from, &self.descriptor, name)
            .map_err(|error| self.failed(name, error))?;
        self.sync()
    }

    pub fn remove(&self, name: &str) -> Result<(), Failure> {
        fs::unlinkat(&self.descriptor, name, AtFlags::empty())
            .map_err(|error| self.failed(name, error))?;
        self.sync()
    }

    fn write(
        &self,
        name: &str,
        bytes: &[u8],
        mode: u32,
        label: Option<&[u8]>,
    ) -> Result<(), Failure> {
        // Left by a command that was killed.
        match fs::unlinkat(&self.descriptor, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(self.failed(name, error)),
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.descriptor, name, flags, Mode::from_raw_mode(0o600))
            .map_err(|error| self.failed(name, error))?;
        let mut file = File::from(file);
        let io = |error: std::io::Error| self.failed(name, error);
        file.write_all(bytes).map_err(io)?;
        // A directory may give its own group to new files.
        let group = (self.owner == 0).then_some(0);
        fchown(&file, Some(self.owner), group).map_err(io)?;
        fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(|error| self.failed(name, error))?;
        if let Some(label) = label.filter(|label| self.label_of(&file).as_deref() != Some(*label)) {
            fs::fsetxattr(&file, self.label, label, XattrFlags::empty()).map_err(|error| {
                self.failed(
                    name,
                    format_args!("its SELinux label cannot be set: {error}"),
                )
            })?;
        }
        file.sync_all().map_err(io)
    }

    fn open_file(&self, name: &str) -> Result<Option<File>, Failure> {
        // Nobody is waited for at the other end of a FIFO.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match fs::openat(&self.descriptor, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {
                return Err(self.failed(
                    name,
                    "it is a symbolic link, which fipd neither follows nor replaces",
                ));
            }
            Err(error) => return Err(self.failed(name, error)),
        };
        let meta = file.metadata().map_err(|error| self.failed(name, error))?;
        match meta.is_file() {
            true => Ok(Some(file)),
            false => Err(self.failed(name, "it is not a regular file")),
        }
    }

    /// The label that a new file of this name gets; `None`: what the kernel gives it.
    fn label_for(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        if let Some(file) = self.open_file(name)? {
            return Ok(self.label_of(&file));
        }
        let others = self.names()?;
        let mut others = others.iter().filter(|other| !other.starts_with('.'));
        // What else is there may be anything.
        Ok(others.find_map(|other| self.label_of(&self.open_file(other).ok()??)))
    }

    /// `None`: it has none, or the host has no SELinux.
    fn label_of(&self, file: &File) -> Option<Vec<u8>> {
        let mut label = vec![0; LONGEST_LABEL];
        let length = fs::fgetxattr(file, self.label, label.as_mut_slice()).ok()?;
        label.truncate(length);
        (length > 0).then_some(label)
    }

    fn sync(&self) -> Result<(), Failure> {
        fs::fsync(&self.descriptor).map_err(|error| self.failed("", error))
    }

    fn failed(&self, name: &str, error: impl std::fmt::Display) -> Failure {
        let path = match name {
            "" => self.path.clone(),
            name => self.path.join(name),
        };
        Failure::Failed(format!("{}: {error}", path.display()))
    }
}

fn missing(path: &Path, error: &std::io::Error) -> Failure {
    let line = format!("{}: {error}", path.display());
    match error.kind() == std::io::ErrorKind::NotFound {
        true => Failure::NotFound(line),
        false => Failure::Failed(line),
    }
}

/// Why somebody else than `owner` can change what is in a directory, or exchange the directory. Above it also root may be the
/// owner, and others may make files of their own (`/tmp`).
fn unsafe_for(owner: u32, has: u32, mode: u32, is_above: bool) -> Option<String> {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    if has != owner && !(is_above && has == 0) {
        return Some(format!("belongs to uid {has}, not to {owner}"));
    }
    let is_sticky = is_above && mode & STICKY != 0;
    (mode & OTHERS_WRITE != 0 && !is_sticky)
        .then(|| format!("has mode {:04o}, by which others may write", mode & 0o7777))
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn me() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    fn scratch() -> (tempfile::TempDir, Folder) {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
        let folder = Folder::open(scratch.path(), me()).unwrap();
        (scratch, folder)
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_with_its_mode() {
        let (scratch, folder) = scratch();
        folder.lock().unwrap();
        std::fs::write(
            scratch.path().join(".plugin.fipd-new"),
            "half of an old one",
        )
        .unwrap();
        for (text, mode) in [("one", 0o755), ("two", 0o644)] {
            let before = folder.read("plugin").unwrap();
            assert!(!folder.has(before.as_ref(), text.as_bytes(), mode));
            folder.put("plugin", text.as_bytes(), mode).unwrap();
            let after = folder.read("plugin").unwrap();
            assert!(folder.has(after.as_ref(), text.as_bytes(), mode));
        }
        assert_eq!(folder.names().unwrap(), ["plugin"]);
        folder.keep("plugin", "saved").unwrap();
        folder.put("plugin", b"three", 0o755).unwrap();
        assert_eq!(folder.read("saved").unwrap().unwrap().bytes, b"two");
        folder.replace("saved", "plugin").unwrap();
        assert_eq!(folder.read("plugin").unwrap().unwrap().bytes, b"two");
        folder.remove("plugin").unwrap();
        assert_eq!(folder.read("plugin").unwrap(), None);
    }

    #[test]
    fn links_and_what_is_no_file_are_refused() {
        let (scratch, folder) = scratch();
        let path = scratch.path();
        std::os::unix::fs::symlink("/etc/passwd", path.join("link")).unwrap();
        std::fs::create_dir(path.join("sub")).unwrap();
        nix::unistd::mkfifo(&path.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for (name, says) in [
            ("link", "symbolic link"),
            ("sub", "not a regular file"),
            ("fifo", "not a regular file"),
        ] {
            for error in [
                folder.read(name).unwrap_err(),
                folder.put(name, b"x", 0o755).unwrap_err(),
            ] {
                assert!(error.to_string().contains(says), "{name}: {error}");
            }
        }
        std::os::unix::fs::symlink(path.join("sub"), path.join("way")).unwrap();
        for name in ["way", "way/"] {
            let error = Folder::open(&path.join(name), me()).unwrap_err();
            assert!(error.to_string().contains("symbolic link"), "{error}");
            assert_eq!(error.code(), 2);
        }
        let error = Folder::open(&path.join("nothing"), me()).unwrap_err();
        assert_eq!(error.code(), 3);
        std::fs::write(path.join("file"), "").unwrap();
        let error = Folder::open(&path.join("file"), me()).unwrap_err();
        assert!(error.to_string().contains("not a directory"), "{error}");
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let (scratch, folder) = scratch();
        let below = scratch.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::set_permissions(&below, Permissions::from_mode(0o755)).unwrap();
        drop(folder);
        std::fs::set_permissions(scratch.path(), Permissions::from_mode(0o775)).unwrap();
        for path in [scratch.path(), &below] {
            let error = Folder::open(path, me()).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("mode 0775"), "{error}");
        }
        for (owner, has, mode, is_above, fine) in [
            (0, 0, 0o755, false, true),
            (0, 0, 0o775, false, false),
            (0, 0, 0o1777, false, false),
            (0, 0, 0o1777, true, true),
            (0, 7, 0o755, true, false),
            (7, 0, 0o755, true, true),
            (7, 0, 0o755, false, false),
        ] {
            let why = unsafe_for(owner, has, mode, is_above);
            assert_eq!(why.is_none(), fine, "{owner} {has} {mode:o}: {why:?}");
        }
    }

    #[test]
    fn one_command_at_a_time_changes_a_directory() {
        let (scratch, folder) = scratch();
        folder.lock().unwrap();
        let other = Folder::open(scratch.path(), me()).unwrap();
        let error = other.lock().unwrap_err().to_string();
        assert!(error.contains("another program"), "{error}");
        drop(folder);
        other.lock().unwrap();
    }

    #[test]
    fn the_label_is_that_of_the_file_before_or_of_the_others() {
        let (_scratch, folder) = scratch();
        // The kernel has others write this one, too.
        let folder = Folder {
            label: "user.fipd-test",
            ..folder
        };
        let set = |name: &str, label: &[u8]| {
            folder.put(name, b"x", 0o755).unwrap();
            let file = folder.open_file(name).unwrap().unwrap();
            fs::fsetxattr(&file, folder.label, label, XattrFlags::empty())
        };
        match set("host-local", b"bin_t\0") {
            // A file system without such attributes.
            Err(Errno::NOTSUP) => return,
            set => set.unwrap(),
        }
        let label = |name: &str| {
            let file = folder.open_file(name).unwrap().unwrap();
            folder.label_of(&file)
        };
        folder.put("fipd-cni", b"new", 0o755).unwrap();
        assert_eq!(label("fipd-cni").as_deref(), Some(&b"bin_t\0"[..]));
        set("fipd-cni", b"own_t\0").unwrap();
        folder.put("fipd-cni", b"newer", 0o755).unwrap();
        assert_eq!(label("fipd-cni").as_deref(), Some(&b"own_t\0"[..]));
    }
}
