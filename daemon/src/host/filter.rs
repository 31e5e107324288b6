//! The packet filter: runs `nft`, knows what it did last, and hears when others change it.

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use netlink_sys::{AsyncSocketExt as _, TokioSocket};
use serde_json::Value;
use tokio::{io::AsyncWriteExt as _, process::Command};

use super::nft::{self, Found, Index, TABLE, Table, Transaction};
use crate::{child, host::nft_events};

/// It takes a second for a hundred thousand sources.
const DEADLINE: Duration = Duration::from_secs(20);
/// Where `nft` is beside what PATH says, which services have little of.
const USUAL: [&str; 3] = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft"];
/// Sources that `nft` lists in some milliseconds.
const LARGE: usize = 1_000;
/// Own runs of `nft` whose news may be still to come.
const RUNS: usize = 16;
const BUFFER: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    #[error("nft is not on this host: install the package nftables, or say where it is")]
    NoNft,
    #[error("{0} cannot be run: {1}")]
    Run(PathBuf, io::Error),
    #[error("nft did not end within {} s", DEADLINE.as_secs())]
    Late,
    #[error("nft refused: {0}")]
    Refused(String),
    #[error("nft said what cannot be read")]
    Unreadable,
    #[error(
        "the table inet {TABLE} of the packet filter is not fipd's: rename it to have sets indexed"
    )]
    Foreign,
}

pub(super) struct Filter {
    /// Where an admin says that it is.
    said: Option<PathBuf>,
    nft: Option<PathBuf>,
    protocol: u8,
    mask: u32,
    /// Tags by which a table is ours: that of now and those of before the restart.
    tags: BTreeSet<u8>,
    /// As it was left, absent or ours; `None`: it is to be looked at.
    left: Option<Found>,
    /// What others made of it is to be looked at.
    doubted: bool,
    runs: VecDeque<u32>,
    events: Option<TokioSocket>,
    buffer: Vec<u8>,
}

impl Filter {
    pub fn new(nft: Option<&Path>, protocol: u8, mask: u32) -> Self {
        Self {
            said: nft.map(Path::to_owned),
            nft: find(nft),
            protocol,
            mask,
            tags: BTreeSet::from([protocol]),
            left: None,
            doubted: true,
            runs: VecDeque::new(),
            events: None,
            buffer: Vec::with_capacity(BUFFER),
        }
    }

    /// A table that has one of these tags is ours, too.
    pub fn also_of(&mut self, tags: BTreeSet<u8>) {
        self.tags.extend(tags);
        self.doubted = true;
    }

    pub fn is_there(&self) -> bool {
        self.nft.is_some()
    }

    /// It may have been installed since.
    pub fn seek(&mut self) {
        if self.nft.is_none() {
            self.nft = find(self.said.as_deref());
        }
    }

    /// The sources in our table of the last run of fipd, so that they are kept while it is not known what is wanted.
    pub async fn start(&mut self) -> Result<Index, FilterError> {
        self.events = nft_events::listen()
            .inspect_err(|error| {
                tracing::warn!(%error, "changes of the packet filter by others are noticed late");
            })
            .ok();
        match self.look().await? {
            Found::Absent => {
                self.left = Some(Found::Absent);
                self.doubted = false;
                Ok(Index::new())
            }
            Found::Foreign => Err(FilterError::Foreign),
            // It is rebuilt whole, since it may be that of another version.
            Found::Own(table) => Ok(table.index),
        }
    }

    /// Brings it there. Answers whether others had changed it.
    pub async fn apply(&mut self, index: &Index) -> Result<bool, FilterError> {
        let nothing = self.left == Some(Found::Absent) || !self.is_there();
        if nothing && index.is_empty() {
            // Nothing of ours is there that others could have changed.
            self.doubted = false;
            return Ok(false);
        }
        let drifted = self.doubted && self.check().await?;
        if index.len() > LARGE && self.left == Some(Found::Absent) {
            // How `nft` shows a table is learned while there is little in it: it lists slower than it adds.
            let room = nft::room(index.len());
            self.bring(&nft::one_of_each(index), room).await?;
        }
        self.bring(index, nft::room(index.len())).await?;
        Ok(drifted)
    }

    /// `room` is for a table that is made anew.
    async fn bring(&mut self, index: &Index, room: usize) -> Result<(), FilterError> {
        let is_so = match &self.left {
            Some(Found::Absent) => index.is_empty(),
            Some(Found::Own(table)) => !index.is_empty() && table.index == *index,
            Some(Found::Foreign) | None => false,
        };
        let before = self.left.take_if(|_| !is_so);
        self.doubted = !is_so;
        if is_so {
            return Ok(());
        }
        if index.is_empty() {
            self.run(&nft::remove()).await?;
            self.left = Some(Found::Absent);
            self.doubted = false;
            return Ok(());
        }
        let (commands, many, before) = match before {
            Some(Found::Own(table)) if table.has_room(index) => {
                let many = table.index.len().abs_diff(index.len()) > LARGE;
                let same = nft::same_marks(&table.index, index);
                let change = nft::change(&table.index, index, self.mask);
                (change, many, same.then_some(table))
            }
            Some(_) | None => {
                let rebuild = nft::rebuild(self.protocol, self.mask, index, room);
                (rebuild, index.len() > LARGE, None)
            }
        };
        let alone = self.run_unheard(&commands, many).await?;
        self.settle(index, before).await?;
        self.doubted |= !alone;
        Ok(())
    }

    /// Takes our table away, whatever it is like.
    pub async fn remove(&mut self) -> Result<(), FilterError> {
        if self.is_there() && matches!(self.look().await?, Found::Own(_)) {
            self.left = None;
            self.run(&nft::remove()).await?;
        }
        Ok(())
    }

    /// Remembers how it is now. Where only sources changed, the rest is as it was.
    async fn settle(&mut self, index: &Index, before: Option<Table>) -> Result<(), FilterError> {
        let table = match before {
            Some(table) => Table {
                index: index.clone(),
                ..table
            },
            None => match self.look().await? {
                Found::Own(table) => table,
                // Another was quicker; the next look tells.
                Found::Absent | Found::Foreign => return Ok(()),
            },
        };
        self.left = Some(Found::Own(table));
        self.doubted = false;
        Ok(())
    }

    /// Whether it is another one than was left.
    async fn check(&mut self) -> Result<bool, FilterError> {
        let found = self.look().await?;
        if found == Found::Foreign {
            return Err(FilterError::Foreign);
        }
        if self.left.as_ref() == Some(&found) {
            self.doubted = false;
            return Ok(false);
        }
        let before = self.left.take();
        self.left = Some(found).filter(|found| *found == Found::Absent);
        Ok(before.is_some())
    }

    /// To be looked at, whatever was heard.
    pub fn doubt(&mut self) {
        self.doubted = true;
    }

    pub fn is_doubted(&self) -> bool {
        self.doubted && self.is_there()
    }

    /// Waits until others change our table. For ever where changes cannot be heard.
    pub async fn changed(&mut self) {
        let Some(events) = &mut self.events else {
            return std::future::pending().await;
        };
        loop {
            self.buffer.clear();
            let touched = match events.recv(&mut self.buffer).await {
                Ok(()) => nft_events::by_others(&self.buffer, &self.runs),
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => true,
                Err(error) => {
                    tracing::warn!(%error, "changes of the packet filter cannot be heard");
                    self.events = None;
                    return std::future::pending().await;
                }
            };
            if touched {
                self.doubted = true;
                return;
            }
        }
    }

    async fn look(&mut self) -> Result<Found, FilterError> {
        let output = self
            .nft(&["-j", "list", "table", "inet", TABLE], None)
            .await;
        match output {
            Ok(listed) => {
                let listed: Value =
                    serde_json::from_slice(&listed).map_err(|_| FilterError::Unreadable)?;
                nft::read(&listed, &self.tags).ok_or(FilterError::Unreadable)
            }
            Err(FilterError::Refused(why)) if why.contains("No such file or directory") => {
                Ok(Found::Absent)
            }
            Err(error) => Err(error),
        }
    }

    /// Runs a transaction whose news would be `many`, without hearing them. Whether nobody changed anything beside it.
    async fn run_unheard(
        &mut self,
        commands: &Transaction,
        many: bool,
    ) -> Result<bool, FilterError> {
        let Some(events) = self.events.as_mut().filter(|_| many) else {
            return self.run(commands).await.map(|()| true);
        };
        let before = nft_events::generation().await;
        // Where it goes on hearing it is slower, that is all.
        let paused = nft_events::pause(events);
        let done = self.run(commands).await;
        if let (Some(events), Ok(())) = (&mut self.events, paused)
            && let Err(error) = nft_events::resume(events)
        {
            tracing::warn!(%error, "changes of the packet filter by others are noticed late");
            self.events = None;
        }
        done?;
        let after = nft_events::generation().await;
        Ok(before.is_ok_and(|before| after.is_ok_and(|after| after == before.wrapping_add(1))))
    }

    async fn run(&mut self, commands: &Transaction) -> Result<(), FilterError> {
        let input = serde_json::to_vec(commands).map_err(|_| FilterError::Unreadable)?;
        self.nft(&["-j", "-f", "-"], Some(input)).await.map(drop)
    }

    async fn nft(
        &mut self,
        arguments: &[&str],
        input: Option<Vec<u8>>,
    ) -> Result<Vec<u8>, FilterError> {
        let nft = self.nft.clone().ok_or(FilterError::NoNft)?;
        let mut command = Command::new(&nft);
        command.args(arguments).env_clear().kill_on_drop(true);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let failed = |error| FilterError::Run(nft.clone(), error);
        let mut child = command.spawn().map_err(failed)?;
        if input.is_some() {
            self.runs.truncate(RUNS - 1);
            self.runs.extend(child.id());
            self.runs.rotate_right(1);
        }
        let ended = async move {
            if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
                // One that does not read says why.
                let _ = stdin.write_all(&input).await;
            }
            child.wait_with_output().await
        };
        let output = tokio::time::timeout(DEADLINE, ended).await;
        let output = output.map_err(|_| FilterError::Late)?.map_err(failed)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let why = String::from_utf8_lossy(&output.stderr);
        let why: Vec<&str> = why.lines().take(3).map(str::trim).collect();
        Err(FilterError::Refused(why.join(" ")))
    }
}

fn find(said: Option<&Path>) -> Option<PathBuf> {
    if let Some(said) = said {
        return Some(said.to_owned()).filter(|nft| nft.is_file());
    }
    child::on_path("nft").or_else(|| {
        USUAL
            .map(PathBuf::from)
            .into_iter()
            .find(|nft| nft.is_file())
    })
}
