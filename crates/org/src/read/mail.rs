//! Reads mail addresses.

use legwork_model::address::{ADDRESS_BYTES_MAX, is_address};
use legwork_model::finding::Rule;
use legwork_model::yaml::fields::{self, Fields, quote};

use super::Reading;

impl Reading {
    pub(super) fn mail(&mut self, fields: &Fields<'_>) -> Option<String> {
        let what = format!("`mail` of {}", fields.what());
        let node = fields.value("mail")?;
        let address = fields::text(node, &what, ADDRESS_BYTES_MAX, &mut self.report)?;
        if !is_address(address.value) {
            let message = format!("{what} cannot be {}", quote(address.value));
            let hint = "write one address, such as ann@clinic.example";
            self.report.error(address.span, Rule::Y2, message, hint);
            return None;
        }
        Some(address.value.to_owned())
    }
}
