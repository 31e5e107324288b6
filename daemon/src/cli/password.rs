//! Passwords from a terminal without echo, or from stdin. Never from an argument, which every process can see.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, IsTerminal as _, Read as _, Write as _},
};

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

use super::exit::Failure;

/// More is no password, but a wrong file.
const MOST: u64 = 4096;

/// The password for this user: asked for twice at a terminal, else the first line of stdin.
pub fn ask(name: &str) -> Result<String, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return line_of(stdin.lock().take(MOST));
    }
    let mut terminal = Terminal::open()?;
    let first = terminal.ask(&format!("Password for {name}: "))?;
    let second = terminal.ask("Again: ")?;
    if first == second {
        Ok(first)
    } else {
        Err(Failure::Input("the two passwords differ".to_owned()))
    }
}

/// The first line without its end.
fn line_of(mut from: impl BufRead) -> Result<String, Failure> {
    let mut line = String::new();
    from.read_line(&mut line).map_err(Failure::failed)?;
    let text = line.strip_suffix('\n').unwrap_or(&line);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        let what = "password: nothing was given; type it at the prompt or write it to stdin";
        return Err(Failure::Input(what.to_owned()));
    }
    Ok(text.to_owned())
}

/// The terminal with its echo off; dropped, it is as it was.
struct Terminal {
    file: BufReader<File>,
    before: Termios,
}

impl Terminal {
    fn open() -> Result<Self, Failure> {
        let cannot = |what: &dyn std::fmt::Display| Failure::Failed(format!("/dev/tty: {what}"));
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty");
        let file = file.map_err(|error| cannot(&error))?;
        let before = tcgetattr(&file).map_err(|error| cannot(&error))?;
        let mut silent = before.clone();
        silent
            .local_flags
            .remove(LocalFlags::ECHO | LocalFlags::ECHOE | LocalFlags::ECHOK);
        silent.local_flags.insert(LocalFlags::ECHONL);
        tcsetattr(&file, SetArg::TCSAFLUSH, &silent).map_err(|error| cannot(&error))?;
        let file = BufReader::new(file);
        Ok(Self { file, before })
    }

    fn ask(&mut self, prompt: &str) -> Result<String, Failure> {
        let out = self.file.get_mut();
        out.write_all(prompt.as_bytes()).map_err(Failure::failed)?;
        line_of(&mut self.file)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // There is nothing left to do about a terminal that went away.
        let _ = tcsetattr(self.file.get_ref(), SetArg::TCSAFLUSH, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_password_with_its_spaces() {
        let line = |text: &str| line_of(text.as_bytes());
        assert_eq!(line(" open sesame \nmore").unwrap(), " open sesame ");
        assert_eq!(line("no end").unwrap(), "no end");
        assert_eq!(line("from windows\r\n").unwrap(), "from windows");
        assert!(line("").is_err() && line("\n").is_err());
        assert!(line_of(&[0xff, 0xfe, b'\n'][..]).is_err());
    }
}
