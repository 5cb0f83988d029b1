//! Addresses of mail, as far as they are used: `local@domain` in plain ASCII.
//!
//! Invariant: what passes here can stand in a header and in an SMTP command as it is: no spaces, no
//! brackets, no line breaks, no quotes.

/// RFC 5321 allows no more in a path.
const CHARS_MAX: usize = 254;

pub fn is_address(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_local = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+/=?^_`{|}~.-".contains(c);
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    text.len() <= CHARS_MAX
        && !local.is_empty()
        && !local.starts_with('.')
        && !local.ends_with('.')
        && local.chars().all(is_local)
        && domain.split('.').all(is_label)
}

/// Whether two addresses are of the same mailbox. Case is not told apart on either side of the `@`:
/// no mail server in use does so.
pub fn same_address(one: &str, other: &str) -> bool {
    one.trim().eq_ignore_ascii_case(other.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_stand_in_a_command_is_an_address() {
        for good in ["ann@example.com", "a.b+c@x", "o'neil@mail.example.org", "1@1.2"] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "ann",
            "@x",
            "ann@",
            "ann@x..y",
            "ann@-x",
            ".a@x",
            "a.@x",
            "a b@x",
            "a@x y",
            "a\r\nRCPT TO:<b@x>@x",
            "<a@x>",
            "a@x>",
            "\"a b\"@x",
            "änn@x",
            "a@b@c d",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
        assert!(!is_address(&format!("{}@x", "a".repeat(300))));
        assert!(same_address("Ann@Example.com ", "ann@example.COM"));
    }
}
