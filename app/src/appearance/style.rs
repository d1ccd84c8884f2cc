//! Styles of iced's widgets, made of the colour roles only.

use iced::widget::{button, checkbox, container, pick_list, progress_bar, rule, scrollable, text_editor, text_input, toggler};
use iced::{Background, Border, Color, Shadow, Theme, border, overlay};

use super::{Roles, radius, roles};

fn outline(color: Color, radius: f32) -> Border {
    border::rounded(radius).width(1).color(color)
}

/// A filled button for the one thing that a page is about.
#[must_use]
pub fn primary(theme: &Theme, status: button::Status) -> button::Style {
    let roles = roles(theme);
    let (ground, text) = match status {
        button::Status::Disabled => (roles.raised, roles.faint),
        button::Status::Hovered => (mix(roles.accent, roles.text, 0.15), roles.on_accent),
        button::Status::Pressed => (mix(roles.accent, roles.text, 0.25), roles.on_accent),
        button::Status::Active => (roles.accent, roles.on_accent),
    };
    button::Style {
        background: Some(ground.into()),
        text_color: text,
        border: border::rounded(radius::CONTROL),
        ..button::Style::default()
    }
}

/// A bordered button.
#[must_use]
pub fn secondary(theme: &Theme, status: button::Status) -> button::Style {
    let roles = roles(theme);
    let (ground, text) = match status {
        button::Status::Disabled => (roles.surface, roles.faint),
        button::Status::Hovered | button::Status::Pressed => (roles.raised, roles.text),
        button::Status::Active => (roles.surface, roles.text),
    };
    button::Style {
        background: Some(ground.into()),
        text_color: text,
        border: outline(roles.line, radius::CONTROL),
        ..button::Style::default()
    }
}

/// A button that is only text until it is pointed at.
#[must_use]
pub fn quiet(theme: &Theme, status: button::Status) -> button::Style {
    let roles = roles(theme);
    let (ground, text) = match status {
        button::Status::Disabled => (None, roles.faint),
        button::Status::Hovered | button::Status::Pressed => (Some(roles.raised.into()), roles.text),
        button::Status::Active => (None, roles.muted),
    };
    button::Style { background: ground, text_color: text, border: border::rounded(radius::CONTROL), ..button::Style::default() }
}

/// A row of the sidebar or of a menu.
pub fn entry(selected: bool) -> impl Fn(&Theme, button::Status) -> button::Style {
    move |theme, status| {
        let roles = roles(theme);
        let pointed = matches!(status, button::Status::Hovered | button::Status::Pressed);
        let ground = if selected { Some(mix(roles.raised, roles.accent, 0.12).into()) } else { pointed.then_some(roles.raised.into()) };
        button::Style { background: ground, text_color: roles.text, border: border::rounded(radius::CONTROL), ..button::Style::default() }
    }
}

/// A small round button with a thin border.
#[must_use]
pub fn chip(theme: &Theme, status: button::Status) -> button::Style {
    let roles = roles(theme);
    let pointed = matches!(status, button::Status::Hovered | button::Status::Pressed);
    let (ground, line) = if pointed { (roles.raised, roles.accent) } else { (roles.surface, roles.line) };
    button::Style {
        background: Some(ground.into()),
        text_color: roles.text,
        border: outline(line, radius::CHIP),
        ..button::Style::default()
    }
}

/// The page.
#[must_use]
pub fn canvas(theme: &Theme) -> container::Style {
    let roles = roles(theme);
    container::Style::default().background(roles.canvas).color(roles.text)
}

/// The sidebar.
#[must_use]
pub fn side(theme: &Theme) -> container::Style {
    let roles = roles(theme);
    container::Style::default().background(roles.surface).color(roles.text)
}

/// A card.
#[must_use]
pub fn card(theme: &Theme) -> container::Style {
    let roles = roles(theme);
    container::Style::default().background(roles.surface).color(roles.text).border(outline(roles.line, radius::CARD))
}

/// A card that waits for the person.
#[must_use]
pub fn waiting(theme: &Theme) -> container::Style {
    let roles = roles(theme);
    container::Style::default()
        .background(roles.surface)
        .color(roles.text)
        .border(border::rounded(radius::CARD).width(2).color(roles.warning))
}

/// What the person wrote.
#[must_use]
pub fn raised(theme: &Theme) -> container::Style {
    let roles = roles(theme);
    container::Style::default().background(roles.raised).color(roles.text).border(border::rounded(radius::CARD))
}

/// A chip that cannot be pressed.
#[must_use]
pub fn tag(theme: &Theme) -> container::Style {
    let roles = roles(theme);
    container::Style::default().background(roles.raised).color(roles.muted).border(border::rounded(radius::CHIP))
}

/// Something over the page.
#[must_use]
pub fn overlay(theme: &Theme) -> container::Style {
    let roles = roles(theme);
    container::Style::default().background(roles.surface).color(roles.text).border(over(roles, radius::CARD))
}

/// The frame around a text field; its line is the focus ring when `focused`.
pub fn field(focused: bool) -> impl Fn(&Theme) -> container::Style {
    move |theme| {
        let roles = roles(theme);
        let line = if focused { roles.focus } else { roles.line };
        container::Style::default().background(roles.surface).color(roles.text).border(outline(line, radius::CARD))
    }
}

/// A message across the page, in a colour with a word beside it.
pub fn banner(color: fn(&Roles) -> Color) -> impl Fn(&Theme) -> container::Style {
    move |theme| {
        let roles = roles(theme);
        let color = color(roles);
        container::Style::default()
            .background(mix(roles.surface, color, 0.08))
            .color(roles.text)
            .border(outline(mix(roles.line, color, 0.5), radius::CARD))
    }
}

/// A text field without a frame of its own.
#[must_use]
pub fn editor(theme: &Theme, _status: text_editor::Status) -> text_editor::Style {
    let roles = roles(theme);
    text_editor::Style {
        background: Background::Color(Color::TRANSPARENT),
        border: Border::default(),
        placeholder: roles.faint,
        value: roles.text,
        selection: roles.selection,
    }
}

/// A text field with its own frame.
#[must_use]
pub fn framed_editor(theme: &Theme, status: text_editor::Status) -> text_editor::Style {
    let roles = roles(theme);
    let line = if matches!(status, text_editor::Status::Focused { .. }) { roles.focus } else { roles.line };
    text_editor::Style { background: roles.surface.into(), border: outline(line, radius::CONTROL), ..editor(theme, status) }
}

/// A line to write in.
#[must_use]
pub fn input(theme: &Theme, status: text_input::Status) -> text_input::Style {
    let roles = roles(theme);
    let line = if matches!(status, text_input::Status::Focused { .. }) { roles.focus } else { roles.line };
    text_input::Style {
        background: roles.surface.into(),
        border: outline(line, radius::CONTROL),
        icon: roles.muted,
        placeholder: roles.faint,
        value: roles.text,
        selection: roles.selection,
    }
}

/// A choice.
#[must_use]
pub fn pick(theme: &Theme, status: pick_list::Status) -> pick_list::Style {
    let roles = roles(theme);
    let line = if matches!(status, pick_list::Status::Opened { .. }) { roles.focus } else { roles.line };
    pick_list::Style {
        text_color: roles.text,
        placeholder_color: roles.faint,
        handle_color: roles.muted,
        background: roles.surface.into(),
        border: outline(line, radius::CONTROL),
    }
}

/// The menu of a choice.
#[must_use]
pub fn menu(theme: &Theme) -> overlay::menu::Style {
    let roles = roles(theme);
    overlay::menu::Style {
        background: roles.surface.into(),
        border: over(roles, radius::CONTROL),
        text_color: roles.text,
        selected_text_color: roles.text,
        selected_background: roles.raised.into(),
        shadow: Shadow::default(),
    }
}

/// A switch.
#[must_use]
pub fn switch(theme: &Theme, status: toggler::Status) -> toggler::Style {
    let roles = roles(theme);
    let (toggler::Status::Active { is_toggled } | toggler::Status::Hovered { is_toggled } | toggler::Status::Disabled { is_toggled }) =
        status;
    let ground = if is_toggled { roles.accent } else { mix(roles.raised, roles.muted, 0.35) };
    toggler::Style {
        background: ground.into(),
        foreground: if is_toggled { roles.on_accent } else { roles.surface }.into(),
        text_color: Some(roles.text),
        ..toggler::default(theme, status)
    }
}

/// A box to tick.
#[must_use]
pub fn tick(theme: &Theme, status: checkbox::Status) -> checkbox::Style {
    let roles = roles(theme);
    let (checkbox::Status::Active { is_checked } | checkbox::Status::Hovered { is_checked } | checkbox::Status::Disabled { is_checked }) =
        status;
    checkbox::Style {
        background: if is_checked { roles.accent } else { roles.surface }.into(),
        icon_color: roles.on_accent,
        border: outline(if is_checked { roles.accent } else { roles.muted }, 4.0),
        text_color: Some(roles.text),
    }
}

/// What lies between a sheet and the page under it. It covers all: nothing shines through that could be painted twice
/// when a part of the window is redrawn, and nothing beside the sheet asks to be read.
#[must_use]
pub fn veil(theme: &Theme) -> container::Style {
    let roles = roles(theme);
    container::Style::default().background(mix(roles.canvas, roles.muted, 0.25)).color(roles.text)
}

/// A progress bar.
#[must_use]
pub fn progress(theme: &Theme) -> progress_bar::Style {
    let roles = roles(theme);
    progress_bar::Style { background: roles.raised.into(), bar: roles.accent.into(), border: border::rounded(radius::CHIP) }
}

/// A line between parts.
#[must_use]
pub fn line(theme: &Theme) -> rule::Style {
    rule::Style { color: roles(theme).line, radius: 0.0.into(), fill_mode: rule::FillMode::Full, snap: true }
}

/// A thin scroller.
#[must_use]
pub fn scroll(theme: &Theme, status: scrollable::Status) -> scrollable::Style {
    let roles = roles(theme);
    let mut style = scrollable::default(theme, status);
    for rail in [&mut style.vertical_rail, &mut style.horizontal_rail] {
        rail.background = None;
        rail.border = Border::default();
        rail.scroller.background = mix(roles.line, roles.muted, 0.4).into();
        rail.scroller.border = border::rounded(radius::CHIP);
    }
    style
}

/// The edge of what lies over other things. A line and no shadow: the software renderer paints a shadow past the part
/// of the window that it redraws, so each redraw would darken what is around it once more.
fn over(roles: &Roles, radius: f32) -> Border {
    outline(mix(roles.line, roles.muted, 0.5), radius)
}

/// A colour between two.
#[must_use]
pub fn mix(from: Color, to: Color, share: f32) -> Color {
    let blend = |from: f32, to: f32| from + (to - from) * share;
    Color { r: blend(from.r, to.r), g: blend(from.g, to.g), b: blend(from.b, to.b), a: blend(from.a, to.a) }
}
