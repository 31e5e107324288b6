//! A machine with one of the packages on it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fipd_tests::testbed::{Kind, Machine, Packages, SHARED, wait_until};

/// A debug build starts slowly where other suites run beside it.
pub const SOON: Duration = Duration::from_secs(40);

/// Of a cluster at whose address nobody answers.
pub const KUBECONFIG: &str = r#"{"apiVersion":"v1","kind":"Config","current-context":"c",
    "clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:9"}}],
    "users":[{"name":"c","user":{"token":"t"}}],
    "contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}]}"#;

pub struct Host {
    machine: Machine,
    kind: Kind,
}

impl Host {
    /// Without fipd.
    pub async fn bare(kind: Kind) -> Self {
        Self::beside(Packages::built().await.unwrap().folder(), kind).await
    }

    /// Without fipd, with a folder of packages at hand.
    pub async fn beside(packages: &Path, kind: Kind) -> Self {
        let machine = Machine::boot(packages).await.unwrap();
        Self { machine, kind }
    }

    /// Booted with fipd on its disk.
    pub async fn booted() -> Self {
        let packages = Packages::built().await.unwrap();
        let file = Packages::file(Packages::NEWER, Kind::Deb);
        let install = format!("dpkg --install {SHARED}/{file}");
        let machine = Machine::boot_after(packages.folder(), &install)
            .await
            .unwrap();
        Self {
            machine,
            kind: Kind::Deb,
        }
    }

    /// With a running fipd that has a pool `lab`.
    pub async fn running() -> Self {
        let host = Self::bare(Kind::Deb).await;
        host.install(Packages::NEWER).await;
        host.active().await;
        host.sh("fipd pool create lab --cidr 10.20.0.0/22").await;
        host
    }

    /// Installs a version, or goes up or down to it; what was said.
    pub async fn install(&self, version: &str) -> String {
        self.install_file(&Packages::file(version, self.kind)).await
    }

    /// Installs a file of the folder of packages; what was said.
    pub async fn install_file(&self, file: &str) -> String {
        let how = match self.kind {
            // What fipd depends on is there. As with an admin who, when asked, keeps the configuration.
            Kind::Deb => "dpkg --force-confold --install",
            // In a Debian the database of rpm knows nothing of what is there.
            Kind::Rpm => "rpm --upgrade --oldpackage --nodeps",
        };
        self.sh(&format!("{how} {SHARED}/{file} 2>&1")).await
    }

    /// Removes the package and keeps what an admin may want again; what was said.
    pub async fn remove(&self) -> String {
        let how = match self.kind {
            Kind::Deb => "dpkg --remove fipd",
            Kind::Rpm => "rpm --erase fipd",
        };
        self.sh(&format!("{how} 2>&1")).await
    }

    /// Runs a command that succeeds; what it prints.
    pub async fn sh(&self, command: &str) -> String {
        match self.machine.run(command).await {
            Ok(said) => said,
            Err(error) => panic!("{error:#}\n{}", self.journal().await),
        }
    }

    /// What a command says, whether it succeeds or not.
    pub async fn said(&self, command: &str) -> String {
        self.machine.said(command).await.unwrap()
    }

    /// Until the service runs and answers.
    pub async fn active(&self) {
        let up = "systemctl is-active --quiet fipd.service && fipd pool list >/dev/null";
        self.until("fipd is active", up, |_| true).await;
    }

    /// Until a command succeeds and says what `test` wants.
    pub async fn until(&self, what: &str, command: &str, test: impl Fn(&str) -> bool) -> String {
        let seen = wait_until(what, SOON, || async {
            match self.machine.run(command).await {
                Ok(said) if test(&said) => Ok(said),
                Ok(said) => Err(said),
                Err(error) => Err(format!("{error:#}")),
            }
        });
        match seen.await {
            Ok(said) => said,
            Err(error) => panic!("{error:#}\n{}", self.journal().await),
        }
    }

    /// A property of the service.
    pub async fn property(&self, name: &str) -> String {
        let show = format!("systemctl show --value --property={name} fipd.service");
        self.sh(&show).await
    }

    /// A path inside, as it is reached from here.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.machine.path(inside)
    }

    async fn journal(&self) -> String {
        let last = "journalctl --no-pager --lines=60 --unit=fipd.service --unit=fipd.socket";
        self.machine.said(last).await.unwrap_or_default()
    }
}
