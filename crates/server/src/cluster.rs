//! The folders of a cluster: one authority, and the start files of every server.
//!
//! Invariant: no secret is ever overwritten, except on request (`certify`), and a key can be read
//! by its owner alone. Created again with a larger topology, a cluster keeps its files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::finding::{Finding, Severity};
use legwork_placement::Topology;

use crate::config::Peering;
use crate::peer::{Authority, NotCertified, Unusable, named_by};

const AUTHORITY: &str = "ca.pem";
const AUTHORITY_KEY: &str = "ca-key.pem";
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";
const TOPOLOGY: &str = "topology.yaml";

/// Why the folders of a cluster cannot be created or used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("the topology has errors; mend them and try again")]
    Topology(Vec<Finding>),
    #[error("{} cannot be read: {why}; `legwork cluster init` writes it", path.display())]
    Read { path: PathBuf, why: io::Error },
    #[error("{} cannot be written: {why}", path.display())]
    Write { path: PathBuf, why: io::Error },
    #[error(transparent)]
    NotCertified(#[from] NotCertified),
    #[error(transparent)]
    Unusable(#[from] Unusable),
    #[error("{} is for no server of the topology beside it", path.display())]
    Nobody { path: PathBuf },
    #[error("there is no folder {}; name a server that `cluster init` has made one for", .0.display())]
    NoServer(PathBuf),
}

/// The result of `init`.
#[derive(Clone, Debug)]
pub struct Folders {
    /// The authority is new.
    pub is_new: bool,
    /// Of every server of the topology.
    pub servers: Vec<Folder>,
}

/// The folder of one server.
#[derive(Clone, Debug)]
pub struct Folder {
    pub server: Arc<str>,
    pub path: PathBuf,
    /// It got a new certificate.
    pub is_new: bool,
    /// The host, if it is a guest: then it is not started by itself.
    pub host: Option<Arc<str>>,
}

/// Creates the authority, unless it exists, and a folder for every server of the topology.
pub fn init(source: &str, out: &Path, valid: Duration) -> Result<Folders, ClusterError> {
    let topology = parse(source)?;
    create(out)?;
    let is_new = !out.join(AUTHORITY_KEY).exists();
    let authority = if is_new { found(out)? } else { read_authority(out)? };
    let mut servers = Vec::new();
    for (_, server) in topology.numbered() {
        let folder = out.join(&*server.name);
        create(&folder)?;
        write(&folder.join(AUTHORITY), authority.certificate())?;
        write(&folder.join(TOPOLOGY), source)?;
        let lacks_one = !folder.join(KEY).exists();
        if lacks_one {
            write_certificate(&authority, &server.name, &folder, valid)?;
        }
        let host = server.host.and_then(|host| topology.server(host));
        let host = host.map(|host| host.name.clone());
        servers.push(Folder { server: server.name.clone(), path: folder, is_new: lacks_one, host });
    }
    Ok(Folders { is_new, servers })
}

/// Gives one server a new certificate; returns its folder.
pub fn certify(server: &str, folder: &Path, valid: Duration) -> Result<PathBuf, ClusterError> {
    let authority = read_authority(folder)?;
    let own = folder.join(server);
    // A name with a path would lead to another folder.
    if Path::new(server).components().count() != 1 || !own.is_dir() {
        return Err(ClusterError::NoServer(own));
    }
    write_certificate(&authority, server, &own, valid)?;
    Ok(own)
}

impl Peering {
    /// Reads the folder of a server: the server is the subject of its certificate.
    pub fn read(folder: &Path) -> Result<Self, ClusterError> {
        let source: Arc<str> = read(&folder.join(TOPOLOGY))?.into();
        let topology = Arc::new(parse(&source)?);
        let names = topology.numbered().map(|(_, server)| server.name.clone());
        let Some(name) = named_by(folder, names)? else {
            return Err(ClusterError::Nobody { path: folder.join(CERTIFICATE) });
        };
        let certificates = folder.to_owned();
        Ok(Self { name, certificates, topology, source, listen: None, replaces: None })
    }
}

fn parse(source: &str) -> Result<Topology, ClusterError> {
    let (topology, findings) = Topology::parse(source);
    let is_sound = findings.iter().all(|finding| finding.severity != Severity::Error);
    topology.filter(|_| is_sound).ok_or(ClusterError::Topology(findings))
}

fn found(out: &Path) -> Result<Authority, ClusterError> {
    let authority = Authority::new()?;
    write_secret(&out.join(AUTHORITY_KEY), &authority.key())?;
    write(&out.join(AUTHORITY), authority.certificate())?;
    Ok(authority)
}

fn read_authority(folder: &Path) -> Result<Authority, ClusterError> {
    let (certificate, key) = (read(&folder.join(AUTHORITY))?, read(&folder.join(AUTHORITY_KEY))?);
    Ok(Authority::from_pem(certificate, &key)?)
}

fn write_certificate(
    authority: &Authority,
    server: &str,
    folder: &Path,
    valid: Duration,
) -> Result<(), ClusterError> {
    let certified = authority.certify(server, valid)?;
    write_secret(&folder.join(KEY), &certified.key)?;
    write(&folder.join(CERTIFICATE), &certified.certificate)
}

fn read(path: &Path) -> Result<String, ClusterError> {
    let text = std::fs::read_to_string(path);
    text.map_err(|why| ClusterError::Read { path: path.to_owned(), why })
}

fn create(folder: &Path) -> Result<(), ClusterError> {
    let created = std::fs::create_dir_all(folder);
    created.map_err(|why| ClusterError::Write { path: folder.to_owned(), why })
}

fn write(path: &Path, text: &str) -> Result<(), ClusterError> {
    replace(path, text, 0o644).map_err(|why| ClusterError::Write { path: path.to_owned(), why })
}

fn write_secret(path: &Path, text: &str) -> Result<(), ClusterError> {
    replace(path, text, 0o600).map_err(|why| ClusterError::Write { path: path.to_owned(), why })
}

/// A server may be reading the file: it reads the old text or the new one.
fn replace(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let beside = path.with_extension("new");
    // Left by an interrupted attempt, perhaps readable for others.
    if let Err(error) = std::fs::remove_file(&beside)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: Duration = Duration::from_secs(3_600);

    fn topology(domains: &[&str]) -> String {
        let mut text = "topology: test\ndomains:\n".to_owned();
        for (place, name) in domains.iter().enumerate() {
            let port = 7_000 + place;
            text.push_str(&format!(
                "  {name}:\n    servers:\n      {name}-1: {{ address: \"127.0.0.1:{port}\", \
                 api: \"http://127.0.0.1:{}\" }}\n",
                port + 100
            ));
        }
        text
    }

    #[test]
    fn a_server_is_the_one_its_certificate_names() {
        let folder = tempfile::tempdir().unwrap();
        let made = init(&topology(&["north", "lab"]), folder.path(), VALID).unwrap();
        assert!(made.is_new);
        for Folder { server: name, path: own, is_new, .. } in made.servers {
            let peering = Peering::read(&own).unwrap();
            assert_eq!((&peering.name, is_new), (&name, true));
        }
    }

    #[test]
    fn a_larger_topology_keeps_the_authority_and_all_keys() {
        let folder = tempfile::tempdir().unwrap();
        init(&topology(&["north"]), folder.path(), VALID).unwrap();
        let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let before = (text("ca.pem"), text("ca-key.pem"), text("north-1/key.pem"));
        let made = init(&topology(&["north", "lab"]), folder.path(), VALID).unwrap();
        assert!(!made.is_new);
        let given: Vec<bool> = made.servers.iter().map(|one| one.is_new).collect();
        assert_eq!(given, [false, true]);
        assert_eq!(before, (text("ca.pem"), text("ca-key.pem"), text("north-1/key.pem")));
        assert!(text("north-1/topology.yaml").contains("lab-1"));
    }

    #[test]
    fn keys_are_readable_by_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        init(&topology(&["north"]), folder.path(), VALID).unwrap();
        for name in ["ca-key.pem", "north-1/key.pem"] {
            let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let error = init("topology: x", folder.path(), VALID).unwrap_err();
        assert!(matches!(error, ClusterError::Topology(findings) if !findings.is_empty()));
        let error = certify("north-1", folder.path(), VALID).unwrap_err();
        assert!(matches!(error, ClusterError::Read { .. }), "{error}");
        init(&topology(&["north"]), folder.path(), VALID).unwrap();
        certify("north-1", folder.path(), VALID).unwrap();
        for name in ["lab-1", "../elsewhere", ""] {
            let error = certify(name, folder.path(), VALID).unwrap_err();
            assert!(matches!(error, ClusterError::NoServer(_)), "{name}: {error}");
        }
        // The key of another authority.
        let other = Authority::new().unwrap();
        std::fs::write(folder.path().join("ca-key.pem"), other.key()).unwrap();
        let error = certify("north-1", folder.path(), VALID).unwrap_err();
        assert!(matches!(error, ClusterError::NotCertified(_)), "{error}");
    }
}
