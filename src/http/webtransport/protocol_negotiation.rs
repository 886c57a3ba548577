//! Negotiation of the application's protocol within a session (draft-ietf-webtrans-http3 section 3.3): the client
//! offers protocols in one structured field, and the server chooses one in another.

use uringcore_h3::Field;
use uringcore_wire::structured_fields::{Parser, Value, unescaped};

pub(super) const OFFERED: &[u8] = b"wt-available-protocols";
pub(super) const TAKEN: &[u8] = b"wt-protocol";

/// The protocols that a request offers, the preferred one first. If a member of the field is not a string, the field
/// is ignored.
pub fn offered(fields: &[Field]) -> Vec<String> {
    let Some(value) = value_of(fields, OFFERED) else {
        return Vec::new();
    };
    let mut protocols = Some(Vec::new());
    let read = Parser(&value).list(|member| match (member, &mut protocols) {
        (Value::String(text), Some(all)) => all.extend(String::from_utf8(unescaped(text))),
        _ => protocols = None,
    });
    read.and(protocols).unwrap_or_default()
}

/// The protocol that a response has chosen; `None` if it has chosen none.
pub fn taken(fields: &[Field]) -> Option<String> {
    match Parser(&value_of(fields, TAKEN)?).item()? {
        Value::String(text) => String::from_utf8(unescaped(text)).ok(),
        _ => None,
    }
}

/// The field value with these protocols. `None` if one cannot be encoded as a string (RFC 9651 section 4.1.6).
pub fn written<'a>(protocols: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut value = String::new();
    for protocol in protocols {
        if !protocol.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return None;
        }
        if !value.is_empty() {
            value.push_str(", ");
        }
        value.push('"');
        value.push_str(&protocol.replace('\\', "\\\\").replace('"', "\\\""));
        value.push('"');
    }
    Some(value)
}

/// The value of a field. Several lines of the field form one list (RFC 9110 section 5.3).
fn value_of(fields: &[Field], name: &[u8]) -> Option<Vec<u8>> {
    let lines = fields.iter().filter(|(known, _)| &**known == name);
    let values: Vec<&[u8]> = lines.map(|(_, value)| &**value).collect();
    (!values.is_empty()).then(|| values.join(&b", "[..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: &'static [u8], values: &[&'static str]) -> Vec<Field> {
        let field = |value: &&'static str| (name.into(), value.as_bytes().into());
        values.iter().map(field).collect()
    }

    #[test]
    fn a_member_that_is_not_a_string_voids_the_field() {
        for (values, expected) in [
            (&[r#""a", "b";q=1,"c d""#][..], &["a", "b", "c d"][..]),
            (&[r#""a""#, r#""b""#], &["a", "b"]),
            (&[r#""a\"\\""#], &[r#"a"\"#]),
            (&[r#""a", token"#], &[]),
            (&[r#""a", ("b")"#], &[]),
            (&[r#""a","#], &[]),
            (&[r#""a"#], &[]),
            (&["1"], &[]),
            (&[""], &[]),
            (&[], &[]),
        ] {
            assert_eq!(offered(&fields(OFFERED, values)), expected, "{values:?}");
        }
        assert_eq!(taken(&fields(TAKEN, &[r#" "a";x "#])).as_deref(), Some("a"));
        for value in ["a", r#""a", "b""#, "", r#""a" b"#] {
            assert_eq!(taken(&fields(TAKEN, &[value])), None, "{value}");
        }
    }

    #[test]
    fn written_protocols_are_read_back() {
        let protocols = ["moq-00", r#"a"b\c"#, ""];
        let value = written(protocols).unwrap();
        let line = (OFFERED.into(), value.into());
        assert_eq!(offered(&[line]), protocols);
        assert_eq!(written(["ü"]), None);
        assert_eq!(written(["a\n"]), None);
    }
}
