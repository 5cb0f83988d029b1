//! A mail server as a process of its own, which can be killed and started again.
//!
//! Invariant: it keeps its ports and its mails for as long as this value lives. It ends when its
//! standard input does, so it never outlives its starter.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/mail/server.py");
/// `\0user\0secret`.
const SECRET: &str = "AHVzZXIAc2VjcmV0";

pub struct MailServer {
    folder: PathBuf,
    process: Option<Child>,
    pub smtp_port: u16,
    pub pop3_port: u16,
}

impl MailServer {
    /// Mails are in the folder.
    pub fn start(folder: &Path) -> Result<Self> {
        let (folder, process) = (folder.to_owned(), None);
        let mut server = Self { folder, process, smtp_port: 0, pop3_port: 0 };
        server.run()?;
        Ok(server)
    }

    /// Starts the process, at its ports if it has been there before.
    pub fn run(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "the mail server runs already");
        let process = Command::new("python3")
            .arg(PROGRAM)
            .arg(&self.folder)
            .args([self.smtp_port, self.pop3_port].map(|port| port.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start python3")?;
        let said = self.process.insert(process).stdout.take().context("no standard output")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        let ports: Vec<u16> =
            line.split_whitespace().filter_map(|port| port.parse().ok()).collect();
        let [smtp, pop3] = *ports else { anyhow::bail!("the mail server has ended at once") };
        (self.smtp_port, self.pop3_port) = (smtp, pop3);
        Ok(())
    }

    /// SIGKILL: it gets no chance to say good-bye.
    pub fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("the mail server is gone")?;
        process.kill()?;
        process.wait()?;
        Ok(())
    }

    /// The mails in a mailbox, oldest first.
    pub fn mails(&self, address: &str) -> Result<Vec<String>> {
        let folder = self.folder.join(address);
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let entries: std::io::Result<Vec<_>> = fs::read_dir(folder)?.collect();
        let mut paths: Vec<PathBuf> = entries?.into_iter().map(|entry| entry.path()).collect();
        paths.sort();
        let mut mails = Vec::new();
        for path in paths {
            match fs::read_to_string(path) {
                Ok(mail) => mails.push(mail),
                // A reader of the mailbox has deleted it meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(mails)
    }

    /// Makes a mailbox full, or usable again.
    pub fn fill(&self, address: &str, is_full: bool) -> Result<()> {
        self.mark(&format!("full-{address}"), is_full)
    }

    /// Breaks the connections of mailbox readers before any deletion, or stops doing so.
    pub fn break_off(&self, breaks_off: bool) -> Result<()> {
        self.mark("breaks-off", breaks_off)
    }

    fn mark(&self, name: &str, is_set: bool) -> Result<()> {
        let mark = self.folder.join(name);
        match is_set {
            true => fs::write(mark, "")?,
            false => fs::remove_file(mark)?,
        }
        Ok(())
    }

    /// Sends a mail, as a person would.
    pub fn send(&self, from: &str, to: &str, mail: &str) -> Result<()> {
        let stream = TcpStream::connect(("127.0.0.1", self.smtp_port))?;
        let (mut writer, mut reader) = (stream.try_clone()?, BufReader::new(stream));
        let mut expect = |code: &str| {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            ensure!(line.starts_with(code), "the mail server says {line}, not {code}");
            Ok(())
        };
        expect("220")?;
        for (command, code) in [
            (format!("AUTH PLAIN {SECRET}"), "235"),
            (format!("MAIL FROM:<{from}>"), "250"),
            (format!("RCPT TO:<{to}>"), "250"),
            ("DATA".to_owned(), "354"),
            (format!("{mail}\r\n."), "250"),
            ("QUIT".to_owned(), "221"),
        ] {
            write!(writer, "{command}\r\n")?;
            expect(code)?;
        }
        Ok(())
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        // It may have gone by itself.
        drop(self.kill());
    }
}
