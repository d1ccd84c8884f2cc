//! The smoke run of CI: the real window opens, says something to the local model, waits for the answer, keeps a
//! picture and ends with a status.

use std::collections::HashSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use handrail_engine::turn::Input;
use iced::{Task, window};

use crate::facts::Facts;

/// How long the whole run may take; `tests/smoke` kills the program after 180 seconds, and its own words say more.
const LONGEST: Duration = Duration::from_secs(140);
/// A picture with fewer colours shows no window.
const COLOURS: usize = 16;
/// How long the last frame gets to be drawn before the picture is taken.
const SETTLE: Duration = Duration::from_millis(700);

/// A smoke run.
#[derive(Clone, Debug)]
pub struct Smoke {
    picture: PathBuf,
    say: String,
    answered: Arc<AtomicBool>,
    passed: Arc<AtomicBool>,
    report: Arc<OnceLock<String>>,
}

/// What happens in it.
#[derive(Clone, Debug)]
pub enum Message {
    /// The first snapshot is here.
    Ready,
    /// The turn is over: answered, or why not.
    Ended(Result<(), String>),
    /// The last frame was drawn.
    Settled,
    /// The picture is taken.
    Taken(window::Screenshot),
    /// It took too long.
    TimedOut,
}

/// What the app must do about it.
#[derive(Debug)]
pub enum Action {
    Run(Task<Message>),
    Say(Input),
    Quit,
}

impl Smoke {
    /// A run that says `say` and keeps its picture at a path.
    #[must_use]
    pub fn new(picture: PathBuf, say: String) -> Self {
        Self { picture, say, answered: Arc::default(), passed: Arc::default(), report: Arc::default() }
    }

    /// What the picture is like, in one line; nothing before it is taken.
    #[must_use]
    pub fn report(&self) -> Option<&str> {
        self.report.get().map(String::as_str)
    }

    /// Whether there was an answer and a picture of it.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.passed.load(Ordering::Relaxed)
    }

    /// Starts the clock.
    pub(crate) fn start(&self) -> Task<Message> {
        Task::perform(async { tokio::time::sleep(LONGEST).await }, |()| Message::TimedOut)
    }

    /// Takes a message in.
    pub(crate) fn update(&self, message: Message, facts: &Facts, window: window::Id) -> Action {
        match message {
            Message::Ready if facts.can_chat() => Action::Say(Input { text: self.say.clone(), ..Input::default() }),
            Message::Ready => {
                tracing::error!(model = facts.settings.chat_model, "smoke: the chat model is not here");
                Action::Run(Task::perform(async { tokio::time::sleep(SETTLE).await }, |()| Message::Settled))
            }
            Message::Ended(result) => {
                match result {
                    Ok(()) => self.answered.store(true, Ordering::Relaxed),
                    Err(reason) => tracing::error!(reason, "smoke: no answer"),
                }
                Action::Run(Task::perform(async { tokio::time::sleep(SETTLE).await }, |()| Message::Settled))
            }
            Message::Settled => Action::Run(window::screenshot(window).map(Message::Taken)),
            Message::Taken(shot) => {
                self.taken(&shot);
                Action::Quit
            }
            Message::TimedOut => {
                tracing::error!("smoke: no answer within {LONGEST:?}");
                Action::Quit
            }
        }
    }

    /// Keeps the picture, and passes when it shows something and there was an answer.
    fn taken(&self, shot: &window::Screenshot) {
        let colours = colours(shot);
        // A run takes one picture.
        let _ = self.report.set(format!("smoke: {}x{}, {colours} colours", shot.size.width, shot.size.height));
        let written = write_png(&self.picture, shot);
        match &written {
            Err(error) => tracing::error!(%error, path = %self.picture.display(), "smoke: the picture cannot be written"),
            Ok(()) if colours < COLOURS => tracing::error!(colours, "smoke: the picture is blank"),
            Ok(()) => {}
        }
        let passed = written.is_ok() && colours >= COLOURS && self.answered.load(Ordering::Relaxed);
        self.passed.store(passed, Ordering::Relaxed);
    }
}

/// How many different colours a picture has.
fn colours(shot: &window::Screenshot) -> usize {
    shot.rgba.chunks_exact(4).collect::<HashSet<_>>().len()
}

/// Writes a picture as a PNG without compression: eight-bit RGBA, stored deflate blocks (RFC 1950, 1951, 2083).
fn write_png(path: &Path, shot: &window::Screenshot) -> std::io::Result<()> {
    let (width, height) = (shot.size.width, shot.size.height);
    let mut raw = Vec::with_capacity(shot.rgba.len() + height as usize);
    for line in shot.rgba.chunks_exact(4 * width.max(1) as usize) {
        raw.push(0);
        raw.extend_from_slice(line);
    }
    let mut zlib = vec![0x78, 0x01];
    let mut blocks = raw.chunks(0xffff).peekable();
    while let Some(block) = blocks.next() {
        let length = block.len() as u16;
        zlib.push(u8::from(blocks.peek().is_none()));
        zlib.extend_from_slice(&length.to_le_bytes());
        zlib.extend_from_slice(&(!length).to_le_bytes());
        zlib.extend_from_slice(block);
    }
    zlib.extend_from_slice(&adler32(&raw).to_be_bytes());
    let mut head = Vec::new();
    head.extend_from_slice(&width.to_be_bytes());
    head.extend_from_slice(&height.to_be_bytes());
    head.extend_from_slice(&[8, 6, 0, 0, 0]);
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    file.write_all(&[0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a])?;
    for (kind, data) in [(b"IHDR", head.as_slice()), (b"IDAT", zlib.as_slice()), (b"IEND", &[])] {
        file.write_all(&(data.len() as u32).to_be_bytes())?;
        file.write_all(kind)?;
        file.write_all(data)?;
        file.write_all(&crc32(&[kind, data]).to_be_bytes())?;
    }
    file.flush()
}

fn adler32(data: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for byte in data {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    (b << 16) | a
}

fn crc32(pieces: &[&[u8]]) -> u32 {
    let table: Vec<u32> = (0..256u32).map(|n| (0..8).fold(n, |c, _| if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 })).collect();
    let bytes = pieces.iter().flat_map(|piece| piece.iter());
    !bytes.fold(!0u32, |crc, byte| table[((crc ^ u32::from(*byte)) & 0xff) as usize] ^ (crc >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A picture of as many colours as pixels, up to 256.
    fn shot(width: u32, colours: usize) -> window::Screenshot {
        let rgba: Vec<u8> = (0..width as usize).flat_map(|at| [(at % colours) as u8, 0, 0, 255]).collect();
        window::Screenshot::new(rgba, iced::Size::new(width, 1), 1.0)
    }

    fn run(ended: Option<Result<(), String>>, colours: usize) -> (Smoke, bool) {
        let folder = tempfile::tempdir().unwrap();
        let smoke = Smoke::new(folder.path().join("a.png"), "hello".to_owned());
        let window = window::Id::unique();
        if let Some(ended) = ended {
            let _ = smoke.update(Message::Ended(ended), &Facts::default(), window);
        }
        let _ = smoke.update(Message::Taken(shot(64, colours)), &Facts::default(), window);
        let kept = folder.path().join("a.png").exists();
        (smoke, kept)
    }

    #[test]
    fn only_an_answer_with_a_picture_that_shows_something_passes() {
        let (smoke, kept) = run(Some(Ok(())), 16);
        assert!(smoke.passed() && kept);
        assert_eq!(smoke.report(), Some("smoke: 64x1, 16 colours"));
        assert!(!run(Some(Ok(())), 15).0.passed());
        assert!(!run(Some(Err("the model broke".to_owned())), 64).0.passed());
        assert!(!run(None, 64).0.passed());
    }

    #[test]
    fn the_run_ends_by_itself_before_the_script_kills_it() {
        assert!(LONGEST < Duration::from_secs(150));
    }

    #[test]
    fn checksums_are_those_of_the_standards() {
        // The check values of the two algorithms for "123456789" and "Wikipedia".
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
    }
}
