//! Mail addresses, restricted to the used part of the syntax: `local@domain` in plain ASCII.
//!
//! Invariant: an address can stand in a header and in an SMTP command as it is: no spaces, no
//! brackets, no line breaks, no quotes. The organisation, settings and letters share this one rule,
//! so every accepted address can be written to.

/// RFC 5321 allows no more in a path.
pub const ADDRESS_BYTES_MAX: usize = 254;

/// The rule as a regular expression, for JSON Schemas.
pub const ADDRESS_PATTERN: &str = concat!(
    r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*",
    r"@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$",
);

/// The dot-atoms of RFC 5322, which real addresses use, and host names.
pub fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_atom = |atom: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
        !atom.is_empty() && atom.chars().all(plain)
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.len() <= ADDRESS_BYTES_MAX
        && local.split('.').all(is_atom)
        && domain.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_stand_in_a_command_is_an_address() {
        for good in
            ["ann@example.com", "a.b+c@x", "o'neil@mail.example.org", "1@1.2", "-a-@x-y.example"]
        {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "ann",
            "@x",
            "ann@",
            "ann@x..y",
            "ann@.x",
            "ann@-x",
            "ann@x-.y",
            ".a@x",
            "a.@x",
            "a..b@x",
            "a b@x",
            "a@x y",
            "a,b@x",
            "a@b@c",
            "a\r\nRCPT TO:<b@x>@x",
            "ann@c\r\nBcc: eve@d",
            "Ann <ann@c>",
            "<a@x>",
            "a@x>",
            "\"a b\"@x",
            "änn@x",
            "a@b@c d",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
        assert!(!is_address(&format!("{}@x", "a".repeat(300))));
    }
}
