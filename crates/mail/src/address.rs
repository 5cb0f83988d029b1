//! Whose an address of mail is.

/// Whether two addresses are of the same mailbox. Case is not told apart on either side of the `@`:
/// no mail server in use does so.
pub fn same_address(one: &str, other: &str) -> bool {
    one.trim().eq_ignore_ascii_case(other.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_not_told_apart() {
        assert!(same_address("Ann@Example.com ", "ann@example.COM"));
        assert!(!same_address("ann@example.com", "ann@example.org"));
    }
}
