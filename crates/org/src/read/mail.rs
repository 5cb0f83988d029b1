//! Reads where somebody can be written to.
//!
//! An address that passes can stand in the header of a mail as it is: it holds nothing that would
//! end a line or begin another address.

use legwork_model::finding::Rule;
use legwork_model::yaml::fields::{self, Fields, quote};

use super::Reading;

/// The longest address.
pub const MAIL_BYTES_MAX: usize = 254;

impl Reading {
    pub(super) fn mail(&mut self, fields: &Fields<'_>) -> Option<String> {
        let what = format!("`mail` of {}", fields.what());
        let address = fields::text(fields.value("mail")?, &what, MAIL_BYTES_MAX, &mut self.report)?;
        if !is_plausible(address.value) {
            let message = format!("{what} cannot be {}", quote(address.value));
            let hint = "write one address, such as ann@clinic.example";
            self.report.error(address.span, Rule::Y2, message, hint);
            return None;
        }
        Some(address.value.to_owned())
    }
}

/// The dot-atoms of RFC 5322, which is what people have.
fn is_plausible(address: &str) -> bool {
    let Some((person, host)) = address.split_once('@') else { return false };
    let atom = |text: &str, extra: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
        text.split('.').all(|part| !part.is_empty() && part.chars().all(plain))
    };
    atom(person, "!#$%&'*+-/=?^_`{|}~") && atom(host, "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_plausible_or_not() {
        for (plausible, addresses) in [
            (true, &["ann@clinic.example", "a.b+c@x", "o'neill@mail.clinic.example"][..]),
            (
                false,
                &[
                    "ann",
                    "@clinic.example",
                    "ann@",
                    "ann@b@c",
                    "ann b@c",
                    "ann@c\r\nBcc: eve@d",
                    "ann,ben@c",
                    "Ann <ann@c>",
                    "ann@.c",
                    "a..b@c",
                    "änn@c",
                ],
            ),
        ] {
            for address in addresses {
                assert_eq!(is_plausible(address), plausible, "{address}");
            }
        }
    }
}
