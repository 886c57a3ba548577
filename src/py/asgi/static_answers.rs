//! Answers with files of published folders (`--static`) that are given again without Python.
//!
//! `uringcore.server.StaticFiles` gives the first answer to a request, and passes its folder if every such request gets
//! the same answer until the file changes. The fields of that answer are kept here. When the answer is repeated for the
//! first time, its content is kept too, if the limit [`CONTENT_BYTES_MAX`] allows it.
//!
//! Before each use the file is compared with the kept version, and so is the file of which it is a compressed sibling: a
//! change is visible at once, as without this table. A sibling that comes later is used within a second. The comparison
//! asks the kernel by name, which waits for no disk because the name was used within that second; files of network file
//! systems are not kept.
//!
//! A request is such a one if it is a GET for the same path with the same Accept-Encoding, and has no condition and no
//! range. Not here: everything else about files, which `StaticFiles` decides.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use uringcore_http::request_head::Head;
use uringcore_io::FileStamp;

use super::asgi_service::AsgiService;
use super::http_stream::HttpStream;
use super::static_folder::{StaticFile, StaticFolder};

/// The kept answers, by request.
#[derive(Default)]
pub struct StaticAnswers {
    answers: FxHashMap<Box<[u8]>, Arc<StaticAnswer>>,
    /// The size of the contents of all answers.
    content_bytes: usize,
}

/// Name and value of a field.
pub type OwnedField = (Box<[u8]>, Box<[u8]>);

/// An answer with the status 200.
pub struct StaticAnswer {
    folder: Py<StaticFolder>,
    /// The file's name below the folder.
    name: Box<[u8]>,
    stamp: FileStamp,
    /// The name and the attributes of the file whose compressed sibling this is.
    original: Option<(Box<[u8]>, FileStamp)>,
    /// The fields, without those of every response.
    fields: Vec<OwnedField>,
    /// The content, if it is kept. Otherwise the file is read for each answer.
    content: OnceLock<Bytes>,
    /// The time from which on the answer is made again, because compressed siblings of the file may have come.
    until: Instant,
}

/// Returns the key of a GET; `None` if the request has fields of which the answer may depend otherwise.
pub fn key<'a>(
    path: &[u8],
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Option<Box<[u8]>> {
    let mut key = Vec::with_capacity(path.len() + 32);
    key.extend_from_slice(path);
    for (name, value) in fields {
        match name {
            b"accept-encoding" => {
                // A path has no zero byte.
                key.push(0);
                key.extend_from_slice(value);
            }
            b"range" | b"expect" | b"content-length" | b"transfer-encoding" => return None,
            _ if name.starts_with(b"if-") => return None,
            _ => {}
        }
    }
    (key.len() <= KEY_BYTES_MAX).then(|| key.into())
}

impl StaticAnswer {
    /// Makes the answer with a whole file of at most [`ANSWER_BYTES_MAX`], which may be a compressed sibling of the file
    /// `original`. `None` if a file changes, or if a call would wait.
    pub fn new(
        folder: &Bound<'_, StaticFolder>,
        file: &StaticFile,
        original: Option<&[u8]>,
        fields: Vec<OwnedField>,
    ) -> Option<Self> {
        let (opened, stamp) = folder.get().open_stamped(file.name_bytes()).ok()?;
        if !file.is_version_of(&stamp) || !opened.is_on_local_file_system() {
            return None;
        }
        let original = match original {
            Some(name) => {
                let (file, stamp) = folder.get().open_stamped(name).ok()?;
                file.is_on_local_file_system()
                    .then(|| (name.into(), stamp))
                    .map(Some)?
            }
            None => None,
        };
        Some(Self {
            folder: folder.clone().unbind(),
            name: file.name_bytes().into(),
            stamp,
            original,
            fields,
            content: OnceLock::new(),
            until: Instant::now() + LIFETIME,
        })
    }

    fn content_bytes(&self) -> usize {
        self.content.get().map_or(0, Bytes::len)
    }

    /// Returns the content, if the file is still the same.
    fn content(&self) -> Option<Bytes> {
        if Instant::now() >= self.until {
            return None;
        }
        let folder = self.folder.get();
        let is_same =
            |name: &[u8], stamp: FileStamp| folder.stamp(name).is_ok_and(|it| it == stamp);
        if let Some((name, stamp)) = &self.original
            && !is_same(name, *stamp)
        {
            return None;
        }
        if let Some(content) = self.content.get() {
            return is_same(&self.name, self.stamp).then(|| content.clone());
        }
        let (file, stamp) = folder.open_stamped(&self.name).ok()?;
        if stamp != self.stamp {
            return None;
        }
        let size = stamp.size as usize;
        let content = file.read_now(size, 0).ok()??;
        let is_whole = content.len() == size && file.stamp().ok()? == stamp;
        is_whole.then(|| content.into())
    }
}

impl StaticAnswers {
    /// Keeps an answer, without its content.
    pub fn keep(&mut self, key: Box<[u8]>, answer: StaticAnswer) {
        self.remove(&key);
        if self.answers.len() >= ANSWERS_MAX || !self.has_room_for(ANSWER_BYTES_MAX as usize) {
            self.remove_expired(Instant::now());
        }
        // A client may ask for many variants of a path. Their answers are made again when they are needed.
        if self.answers.len() >= ANSWERS_MAX {
            *self = Self::default();
        }
        self.answers.insert(key, Arc::new(answer));
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.content_bytes + bytes <= CONTENT_BYTES_MAX
    }

    /// Keeps the content of an answer that is in the table, if there is room for it.
    fn keep_content(&mut self, key: &[u8], content: &Bytes) {
        if self.has_room_for(content.len())
            && let Some(answer) = self.answers.get(key)
            && answer.content.set(content.clone()).is_ok()
        {
            self.content_bytes += content.len();
        }
    }

    fn remove(&mut self, key: &[u8]) -> Option<Arc<StaticAnswer>> {
        let old = self.answers.remove(key)?;
        self.content_bytes -= old.content_bytes();
        Some(old)
    }

    fn remove_expired(&mut self, now: Instant) {
        self.answers.retain(|_, answer| now < answer.until);
        self.content_bytes = self.answers.values().map(|it| it.content_bytes()).sum();
    }
}

impl AsgiService {
    /// Answers a GET with a file, if the same request was answered so before. Returns false if the application has to
    /// answer.
    pub fn answer_with_file(&self, py: Python<'_>, head: &Head, stream: &dyn HttpStream) -> bool {
        let is_empty = |answers: &mut StaticAnswers| answers.answers.is_empty();
        if self.answers.with(py, is_empty) || &*head.method != b"GET" || head.is_early {
            return false;
        }
        let (path, _) = super::scope::split(&head.target);
        let fields = head.fields.iter();
        let Some(key) = key(path, fields.map(|(name, value)| (&name[..], &value[..]))) else {
            return false;
        };
        let Some(answer) = self
            .answers
            .with(py, |kept| kept.answers.get(&key).cloned())
        else {
            return false;
        };
        let Some(content) = answer.content() else {
            let old = self.answers.with(py, |kept| kept.remove(&key));
            drop(old);
            return false;
        };
        if answer.content.get().is_none() {
            self.answers
                .with(py, |kept| kept.keep_content(&key, &content));
        }
        let defaults = self.default_headers(py, 0);
        let mut fields = Vec::with_capacity(1 + defaults.len() + answer.fields.len());
        fields.push((&b":status"[..], &b"200"[..]));
        let lines = defaults.iter();
        fields.extend(lines.map(|(name, value)| (name.as_bytes(py), value.as_bytes(py))));
        fields.extend(
            answer
                .fields
                .iter()
                .map(|(name, value)| (&**name, &**value)),
        );
        if stream.respond(py, &fields, content, true).is_err() {
            // Nothing was sent. The application's answer handles the reason.
            return false;
        }
        self.count_answered(py);
        stream.written(py);
        stream.done(py);
        true
    }
}

/// The largest file of an answer here. Larger ones are sent in parts.
pub const ANSWER_BYTES_MAX: u64 = 128 * 1024;
/// The time for which an answer is repeated.
const LIFETIME: Duration = Duration::from_secs(1);
const KEY_BYTES_MAX: usize = 512;
/// The largest number of answers. Without the contents they occupy a few MiB at most.
const ANSWERS_MAX: usize = 1024;
/// The largest size of all contents. They stay until their room is needed, also after [`LIFETIME`].
const CONTENT_BYTES_MAX: usize = 16 << 20;
