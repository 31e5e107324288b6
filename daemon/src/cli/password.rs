//! Passwords from a terminal without echo, or from stdin. Never from an argument, which every process can see.

use std::io::{BufRead, IsTerminal as _, Read as _};

use super::exit::Failure;

/// More is no password, but a wrong file.
const MOST: u64 = 4096;

/// The password for this user: asked for twice at a terminal, else the first line of stdin.
pub fn ask(name: &str) -> Result<String, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return line_of(stdin.lock().take(MOST));
    }
    let first = typed(&format!("Password for {name}: "))?;
    let second = typed("Again: ")?;
    if first == second {
        Ok(first)
    } else {
        Err(Failure::Input("the two passwords differ".to_owned()))
    }
}

fn typed(prompt: &str) -> Result<String, Failure> {
    let typed = rpassword::prompt_password(prompt);
    let typed = typed.map_err(|error| Failure::Failed(format!("/dev/tty: {error}")))?;
    line_of(typed.as_bytes())
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
