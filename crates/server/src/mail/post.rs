//! The resources for mail: key, passwords and certificates, all checked when the server starts.
//!
//! Invariant: a server with unusable mail settings does not start. The key is readable by its owner
//! alone, and stays the same as long as its file does.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use legwork_mail::{KEY_BYTES, Key, Password, Settings};
use legwork_model::value::{hex, unhex};

use super::pop3;
use super::smtp::Server;
use super::wire::{Place, trust};
use crate::config::{Config, StoreChoice};
use crate::ids::random;

/// The key, in the folder of the store.
const KEY_FILE: &str = "mail.key";

/// Why the mail settings are unusable.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("{} cannot be used as the key of mail: {why}", .path.display())]
    Key { path: PathBuf, why: String },
    #[error(
        "the key of mail has no place: say `key_file` in the mail settings, the same key for every \
         server of a cluster; \
         `(umask 077 && od -An -vtx1 -N32 /dev/urandom | tr -d ' \\n' > mail.key)` makes one"
    )]
    NoKey,
    #[error("the password in {place} cannot be used: {why}")]
    Password { place: String, why: String },
    #[error("mail: {0}")]
    Certificates(String),
}

/// The resources for letters and replies.
pub(crate) struct Post {
    pub(crate) settings: Settings,
    key: OnceLock<Key>,
    /// Where the key is created, if it does not exist yet.
    key_folder: Option<PathBuf>,
    pub(super) smtp: Server,
    pub(super) inbox: Option<(pop3::Box, Duration)>,
}

impl Post {
    pub(crate) fn open(config: &Config) -> Result<Option<Self>, Unusable> {
        let Some(settings) = config.mail.clone() else { return Ok(None) };
        let smtp = &settings.smtp;
        let place = Place {
            host: smtp.host.clone(),
            port: smtp.port,
            tls: smtp.tls,
            config: trust(smtp.tls, smtp.authority.as_deref()).map_err(Unusable::Certificates)?,
        };
        let login = match &smtp.login {
            Some((user, password)) => Some((user.to_string(), read_password(password)?)),
            None => None,
        };
        let smtp = Server { place, login };
        let inbox = match &settings.inbox {
            Some(inbox) => {
                let config = trust(inbox.tls, inbox.authority.as_deref());
                let config = config.map_err(Unusable::Certificates)?;
                let (host, port, tls) = (inbox.host.clone(), inbox.port, inbox.tls);
                let place = Place { host, port, tls, config };
                let (user, password) = (inbox.user.to_string(), read_password(&inbox.password)?);
                Some((pop3::Box { place, user, password }, inbox.every))
            }
            None => None,
        };
        let (key, key_folder) = match key(config, settings.key_file.as_deref())? {
            Found::Key(bytes) => (OnceLock::from(Key::new(&bytes)), None),
            Found::Folder(folder) => (OnceLock::new(), Some(folder)),
        };
        Ok(Some(Self { settings, key, key_folder, smtp, inbox }))
    }

    /// Creates the key at the first start, when the folder contains a store: a folder with another
    /// file would not be accepted for a new store.
    pub(crate) fn make_key(&self) -> Result<(), Unusable> {
        let Some(folder) = self.key_folder.as_ref().filter(|_| self.key.get().is_none()) else {
            return Ok(());
        };
        let key = Key::new(&make_key(folder)?);
        // One process creates one key.
        drop(self.key.set(key));
        Ok(())
    }

    /// The key, once there is one.
    pub(crate) fn key(&self) -> Option<&Key> {
        self.key.get()
    }
}

/// The key, or its future place.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Key([u8; KEY_BYTES]),
    Folder(PathBuf),
}

fn key(config: &Config, file: Option<&str>) -> Result<Found, Unusable> {
    match (file, &config.store, &config.peering) {
        (Some(path), _, _) => read_key(Path::new(path)).map(Found::Key),
        (None, StoreChoice::Directory(folder), None) => {
            let path = folder.join(KEY_FILE);
            match path.exists() {
                true => read_key(&path).map(Found::Key),
                false => Ok(Found::Folder(folder.clone())),
            }
        }
        // A letter of an in-memory server need not be answered after its end.
        (None, StoreChoice::Memory, None) => draw_key(Path::new("memory")).map(Found::Key),
        // The server that reads the replies needs the key of those that signed.
        (None, StoreChoice::Directory(_) | StoreChoice::Memory | StoreChoice::Postgres(_), _) => {
            Err(Unusable::NoKey)
        }
    }
}

fn read_key(path: &Path) -> Result<[u8; KEY_BYTES], Unusable> {
    let wrong = |why: String| Unusable::Key { path: path.to_owned(), why };
    let failed = |error: io::Error| wrong(format!("{error}; make it readable, or name another"));
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        let (path, mode) = (path.display(), mode & 0o777);
        let why = format!("others may read it (mode {mode:o}); say `chmod 600 {path}`");
        return Err(wrong(why));
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    unhex(text.trim()).ok_or_else(|| {
        let digits = 2 * KEY_BYTES;
        wrong(format!("it does not hold {digits} hexadecimal digits; take the file as it was made"))
    })
}

/// Atomically: a truncated key would invalidate every letter on its way.
fn make_key(folder: &Path) -> Result<[u8; KEY_BYTES], Unusable> {
    let path = &folder.join(KEY_FILE);
    let bytes = draw_key(path)?;
    let write = || {
        let beside = folder.join(format!("{KEY_FILE}.new"));
        let mut options = fs::OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside)?;
        writeln!(file, "{}", hex(&bytes))?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        fs::File::open(folder)?.sync_all()
    };
    let made: io::Result<()> = write();
    let wrong = |error: io::Error| Unusable::Key { path: path.to_owned(), why: error.to_string() };
    made.map(|()| bytes).map_err(wrong)
}

fn draw_key(path: &Path) -> Result<[u8; KEY_BYTES], Unusable> {
    random().map_err(|error| Unusable::Key { path: path.to_owned(), why: error.to_string() })
}

fn read_password(password: &Password) -> Result<String, Unusable> {
    let (place, found) = match password {
        Password::File(path) => {
            let found = fs::read_to_string(&**path).map_err(|error| error.to_string());
            (path.to_string(), found)
        }
        Password::Environment(name) => {
            let found = std::env::var(&**name).map_err(|error| error.to_string());
            (format!("the variable {name}"), found)
        }
    };
    let usable = found.and_then(|found| {
        let password = found.trim_end_matches(['\r', '\n']).to_owned();
        match password.is_empty() || password.contains(char::is_control) {
            true => Err("it is empty, or has more than one line".to_owned()),
            false => Ok(password),
        }
    });
    usable.map_err(|why| Unusable::Password { place, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(store: StoreChoice, more: &str) -> Config {
        let text = format!("from: lw@example.com\nsmtp: {{ host: localhost, tls: none }}\n{more}");
        let (settings, findings) = Settings::parse(&text);
        assert_eq!(findings, []);
        Config { mail: settings, ..Config::new(store) }
    }

    #[test]
    fn a_server_in_its_folder_makes_a_key_for_itself_and_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(StoreChoice::Directory(folder.path().to_owned()), "");
        assert_eq!(key(&config, None).unwrap(), Found::Folder(folder.path().to_owned()));
        let first = make_key(folder.path()).unwrap();
        let path = folder.path().join(KEY_FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(key(&config, None).unwrap(), Found::Key(first));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let why = key(&config, None).unwrap_err().to_string();
        assert!(why.contains("chmod 600"), "{why}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "12").unwrap();
        assert!(key(&config, None).is_err());
    }

    #[test]
    fn servers_that_share_something_are_told_their_key() {
        let url = crate::DatabaseUrl::new("postgres://x/y");
        let config = config(StoreChoice::Postgres(url), "");
        assert!(matches!(key(&config, None), Err(Unusable::NoKey)));
    }

    #[test]
    fn the_key_that_one_is_told_how_to_make_can_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let said = Unusable::NoKey.to_string();
        let command = said.split('`').find(|part| part.contains("urandom")).unwrap();
        let mut shell = std::process::Command::new("sh");
        assert!(shell.args(["-c", command]).current_dir(folder.path()).status().unwrap().success());
        let made = read_key(&folder.path().join(KEY_FILE)).unwrap();
        assert_ne!(made, [0; KEY_BYTES]);
    }

    #[test]
    fn a_password_is_read_without_the_end_of_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let place = Password::File(file.path().to_str().unwrap().into());
        assert!(read_password(&place).is_err());
        fs::write(file.path(), "s e c\r\n").unwrap();
        assert_eq!(read_password(&place).unwrap(), "s e c");
        fs::write(file.path(), "a\nb").unwrap();
        assert!(read_password(&place).is_err());
        let missing = read_password(&Password::Environment("LEGWORK_NO_SUCH".into()));
        assert!(missing.unwrap_err().to_string().contains("LEGWORK_NO_SUCH"));
    }
}
