//! The tray: an icon with the worst state of all servers, a tip that says it in words, and a menu of the servers.
//!
//! A desktop without a tray is nothing unusual: that is logged once, and everything else works without it.

use std::fmt;

use futures::channel::mpsc;
use handrail_engine::mcp::State;
use handrail_engine::tool::ServerId;
use iced::Subscription;
use tray_icon::menu::{Menu, MenuEvent, MenuItem, PredefinedMenuItem};
use tray_icon::{Icon, MouseButton, MouseButtonState, TrayIcon, TrayIconBuilder, TrayIconEvent};

use crate::appearance::{self, Roles};
use crate::facts::Facts;
use crate::locale::Locale;
use crate::screen::servers::card;

/// Side of the icon, in pixels.
const SIDE: u32 = 32;
/// Servers that the menu lists; the others are on their screen.
const LISTED: usize = 20;
/// What begins the id of a server's entry in the menu.
const SERVER: &str = "server:";

/// Where the state of all servers is shown beside the window.
pub trait Tray: fmt::Debug {
    /// Shows a picture; must not wait.
    fn show(&mut self, picture: Picture);
}

/// What is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// The worst state of all.
    pub worst: Worst,
    /// It in words.
    pub tip: String,
    /// A line for each server: its name and its state.
    pub servers: Vec<(ServerId, String)>,
    /// The words of the other entries.
    pub show: String,
    /// The words of the last entry.
    pub quit: String,
}

/// How bad it is, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Worst {
    /// Nothing runs.
    Idle,
    /// All is well.
    Well,
    /// Something is on its way.
    Busy,
    /// Somebody is needed.
    Needs,
    /// Something failed.
    Failed,
}

impl Worst {
    const fn of(state: &State) -> Self {
        match state {
            State::Stopped => Self::Idle,
            State::Connected => Self::Well,
            State::Starting { .. } | State::Slow { .. } | State::Reconnecting { .. } => Self::Busy,
            State::NeedsConsent | State::NeedsSignIn { .. } => Self::Needs,
            State::Failed { .. } => Self::Failed,
        }
    }
}

/// What a person did with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The window is wanted.
    Show,
    /// A server is wanted.
    Server(ServerId),
    /// The program is to end.
    Quit,
}

/// What the tray shows of the facts.
#[must_use]
pub fn picture(facts: &Facts, locale: &Locale) -> Picture {
    let mut worst = facts.servers.iter().map(|server| Worst::of(&server.state)).max().unwrap_or(Worst::Idle);
    if facts.config_error.is_some() || !facts.questions.is_empty() {
        worst = worst.max(Worst::Needs);
    }
    let (connected, needs) = facts.server_counts();
    let mut tip = match worst {
        Worst::Idle => locale.t("tray-idle"),
        Worst::Well => locale.t("tray-well"),
        Worst::Busy => locale.t("tray-busy"),
        Worst::Needs => locale.tv("tray-needs", [("count", needs.into())]),
        Worst::Failed => locale.t("tray-failed"),
    };
    if !facts.servers.is_empty() {
        let values = [("connected", connected.into()), ("count", facts.servers.len().into())];
        tip = format!("{tip} · {}", locale.tv("tray-connected", values));
    }
    let mut servers: Vec<_> = facts.servers.iter().collect();
    // Where not all fit, those that need someone must be among them.
    servers.sort_by_key(|server| std::cmp::Reverse(Worst::of(&server.state)));
    let line = |name: &ServerId, state: &State| format!("{name}: {}", card::word(state, locale));
    Picture {
        worst,
        tip,
        servers: servers.into_iter().take(LISTED).map(|server| (server.id.clone(), line(&server.id, &server.state))).collect(),
        show: locale.t("tray-show"),
        quit: locale.t("fault-quit"),
    }
}

/// What a person does with the tray.
pub fn follow() -> Subscription<Told> {
    Subscription::run(|| {
        let (out, told) = mpsc::unbounded();
        let menu = out.clone();
        MenuEvent::set_event_handler(Some(move |event: MenuEvent| {
            if let Some(told) = of_id(event.id().0.as_str()) {
                // The receiver only goes with the program.
                let _ = menu.unbounded_send(told);
            }
        }));
        TrayIconEvent::set_event_handler(Some(move |event| {
            if matches!(event, TrayIconEvent::Click { button: MouseButton::Left, button_state: MouseButtonState::Up, .. }) {
                let _ = out.unbounded_send(Told::Show);
            }
        }));
        told
    })
}

fn of_id(id: &str) -> Option<Told> {
    match id {
        "show" => Some(Told::Show),
        "quit" => Some(Told::Quit),
        other => other.strip_prefix(SERVER).map(|server| Told::Server(ServerId::new(server))),
    }
}

fn menu(picture: &Picture) -> Result<Menu, tray_icon::menu::Error> {
    let menu = Menu::new();
    for (server, words) in &picture.servers {
        menu.append(&MenuItem::with_id(format!("{SERVER}{server}"), words, true, None))?;
    }
    if !picture.servers.is_empty() {
        menu.append(&PredefinedMenuItem::separator())?;
    }
    menu.append(&MenuItem::with_id("show", &picture.show, true, None))?;
    menu.append(&MenuItem::with_id("quit", &picture.quit, true, None))?;
    Ok(menu)
}

fn build(picture: &Picture) -> Result<TrayIcon, String> {
    let menu = menu(picture).map_err(|error| error.to_string())?;
    let icon = icon(picture.worst).map_err(|error| error.to_string())?;
    let builder = TrayIconBuilder::new().with_id("handrail").with_title("Handrail").with_tooltip(&picture.tip);
    builder.with_icon(icon).with_menu(Box::new(menu)).build().map_err(|error| error.to_string())
}

fn change(tray: &TrayIcon, picture: &Picture) -> Result<(), String> {
    tray.set_icon(Some(icon(picture.worst).map_err(|error| error.to_string())?)).map_err(|error| error.to_string())?;
    tray.set_tooltip(Some(&picture.tip)).map_err(|error| error.to_string())?;
    tray.set_menu(Some(Box::new(menu(picture).map_err(|error| error.to_string())?)));
    Ok(())
}

fn icon(worst: Worst) -> Result<Icon, tray_icon::BadIcon> {
    Icon::from_rgba(pixels(worst, &appearance::LIGHT), SIDE, SIDE)
}

/// Two posts and the rail between them; a mark in the corner differs in shape as well as in colour.
fn pixels(worst: Worst, roles: &Roles) -> Vec<u8> {
    let mark = match worst {
        Worst::Idle | Worst::Well => None,
        Worst::Busy => Some(roles.info),
        Worst::Needs => Some(roles.warning),
        Worst::Failed => Some(roles.danger),
    };
    let ground = if worst == Worst::Idle { roles.faint } else { roles.accent };
    let mut pixels = Vec::with_capacity((SIDE * SIDE * 4) as usize);
    for y in 0..SIDE {
        for x in 0..SIDE {
            let (left, top) = (x as f32 - 23.0, y as f32 - 23.0);
            let distance = left.hypot(top);
            let inside = (1..SIDE - 1).contains(&x) && (1..SIDE - 1).contains(&y);
            let post = (7..25).contains(&y) && ((8..12).contains(&x) || (20..24).contains(&x));
            let rail = (14..18).contains(&y) && (8..24).contains(&x);
            let color = match mark {
                Some(color) if distance < 8.5 => Some(inner(worst, left, top, distance).unwrap_or(color)),
                _ if post || rail => Some(roles.on_accent),
                _ => inside.then_some(ground),
            };
            pixels.extend(color.map_or([0; 4], iced::Color::into_rgba8));
        }
    }
    pixels
}

/// What stands in the mark: a hole for busy, a stroke for needed, a cross for failed.
fn inner(worst: Worst, left: f32, top: f32, distance: f32) -> Option<iced::Color> {
    let drawn = match worst {
        Worst::Idle | Worst::Well => false,
        Worst::Busy => distance < 4.0,
        Worst::Needs => left.abs() < 1.6 && top.abs() < 5.6 && !(1.2..2.6).contains(&top),
        Worst::Failed => left.abs() < 5.0 && top.abs() < 5.0 && ((left - top).abs() < 2.2 || (left + top).abs() < 2.2),
    };
    drawn.then_some(iced::Color::WHITE)
}

/// Starts the tray; nothing where there can be none.
#[cfg(target_os = "linux")]
#[must_use]
pub fn start() -> Option<Box<dyn Tray>> {
    let (sender, pictures) = std::sync::mpsc::channel();
    // The session bus is spoken to from a thread of its own: it may be slow or not there at all.
    let thread = std::thread::Builder::new().name("handrail-tray".to_owned()).spawn(move || run(&pictures));
    match thread {
        Ok(_) => Some(Box::new(Threaded { sender, last: None })),
        Err(error) => {
            tracing::info!(%error, "no tray");
            None
        }
    }
}

#[cfg(target_os = "linux")]
fn run(pictures: &std::sync::mpsc::Receiver<Picture>) {
    let mut tray: Option<TrayIcon> = None;
    while let Ok(mut picture) = pictures.recv() {
        // Only the newest matters.
        while let Ok(newer) = pictures.try_recv() {
            picture = newer;
        }
        let shown = match &tray {
            Some(tray) => change(tray, &picture),
            None => build(&picture).map(|built| tray = Some(built)),
        };
        if let Err(reason) = shown {
            tracing::info!(reason, "this desktop has no tray");
            return;
        }
    }
}

/// A tray on a thread of its own.
#[cfg(target_os = "linux")]
#[derive(Debug)]
struct Threaded {
    sender: std::sync::mpsc::Sender<Picture>,
    last: Option<Picture>,
}

#[cfg(target_os = "linux")]
impl Tray for Threaded {
    fn show(&mut self, picture: Picture) {
        if self.last.as_ref() != Some(&picture) {
            self.last = Some(picture.clone());
            // The thread is gone where there is no tray.
            let _ = self.sender.send(picture);
        }
    }
}

/// Starts the tray. It lives on the thread of the window, as these systems want it, and is made with the first picture,
/// when that thread's loop runs.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn start() -> Option<Box<dyn Tray>> {
    Some(Box::new(Direct { tray: None, last: None, is_missing: false }))
}

/// A tray on the thread of the window.
#[cfg(not(target_os = "linux"))]
struct Direct {
    tray: Option<TrayIcon>,
    last: Option<Picture>,
    is_missing: bool,
}

#[cfg(not(target_os = "linux"))]
impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("last", &self.last).finish_non_exhaustive()
    }
}

#[cfg(not(target_os = "linux"))]
impl Tray for Direct {
    fn show(&mut self, picture: Picture) {
        if self.is_missing || self.last.as_ref() == Some(&picture) {
            return;
        }
        let shown = match &self.tray {
            Some(tray) => change(tray, &picture),
            None => build(&picture).map(|built| self.tray = Some(built)),
        };
        self.last = Some(picture);
        if let Err(reason) = shown {
            tracing::info!(reason, "there is no tray");
            self.is_missing = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locale::Language;

    #[test]
    fn the_worst_state_wins_and_is_said_in_words() {
        let order = [
            State::Stopped,
            State::Connected,
            State::Slow { reason: String::new() },
            State::NeedsConsent,
            State::Failed { reason: String::new(), exit_code: None },
        ];
        assert!(order.windows(2).all(|two| Worst::of(&two[0]) < Worst::of(&two[1])));
        let locale = Locale::new(Language::English);
        let mut facts = Facts::default();
        assert_eq!((picture(&facts, &locale).worst, picture(&facts, &locale).tip.as_str()), (Worst::Idle, "No server runs"));
        facts.config_error = Some("line 3".to_owned());
        assert_eq!(picture(&facts, &locale).worst, Worst::Needs);
        assert_eq!(picture(&facts, &locale).tip, "1 thing waits for you");
    }

    #[test]
    fn each_state_has_a_picture_of_its_own_without_colour() {
        let all = [Worst::Idle, Worst::Busy, Worst::Needs, Worst::Failed];
        // Where the mark is white.
        let shape = |worst| pixels(worst, &appearance::LIGHT).chunks(4).map(|p| p == [255; 4]).collect::<Vec<_>>();
        let shapes: std::collections::HashSet<Vec<bool>> = all.into_iter().map(shape).collect();
        assert_eq!(shapes.len(), all.len());
        assert_eq!(pixels(Worst::Well, &appearance::LIGHT).len(), 4 * 32 * 32);
    }

    #[test]
    fn entries_lead_to_what_they_name() {
        assert_eq!(of_id("server:my files"), Some(Told::Server("my files".into())));
        assert_eq!((of_id("show"), of_id("quit"), of_id("other")), (Some(Told::Show), Some(Told::Quit), None));
    }
}
