//! Colours, sizes, spaces and fonts. No other module names a colour, a size or a duration.

pub mod style;

use iced::font::{Style, Weight};
use iced::theme::Palette;
use iced::{Color, Font, Theme, color};

use handrail_widgets::markdown;

/// Space between things, in logical pixels.
pub mod space {
    pub const XS: f32 = 4.0;
    pub const S: f32 = 8.0;
    pub const M: f32 = 12.0;
    pub const L: f32 = 16.0;
    pub const XL: f32 = 24.0;
    pub const XXL: f32 = 32.0;
}

/// Corner radii.
pub mod radius {
    pub const CONTROL: f32 = 6.0;
    pub const CARD: f32 = 10.0;
    pub const CHIP: f32 = 999.0;
}

/// Type: size and line height.
pub mod size {
    pub const SMALL: (f32, f32) = (12.0, 16.0);
    pub const UI: (f32, f32) = (13.0, 18.0);
    pub const BODY: (f32, f32) = (15.0, 24.0);
    pub const TITLE: (f32, f32) = (17.0, 24.0);
    pub const PAGE: (f32, f32) = (22.0, 28.0);
    pub const CODE: (f32, f32) = (13.0, 20.0);
    pub const ICON: f32 = 16.0;
}

/// Widths of the window's parts.
pub mod width {
    pub const SIDEBAR: f32 = 264.0;
    /// Below this width of the window the sidebar lies over the page, on demand.
    pub const NARROW: f32 = 900.0;
    pub const READING: f32 = 760.0;
    /// Pages of tables and logs.
    pub const WIDE: f32 = 1100.0;
    /// Something that lies over the page.
    pub const SHEET: f32 = 640.0;
    pub const INSPECTOR: f32 = 360.0;
}

/// The interface's font.
pub const SANS: Font = Font::with_name("Inter");
/// Its heavier face.
pub const STRONG: Font = Font { weight: Weight::Semibold, ..SANS };
/// Its slanted face.
pub const ITALIC: Font = Font { style: Style::Italic, ..SANS };
/// The font of code and of values.
pub const MONO: Font = Font::with_name("JetBrains Mono");
/// The icons.
pub const ICONS: Font = Font::with_name("lucide");

/// The bundled fonts.
pub const FONTS: [&[u8]; 5] = [
    include_bytes!("../../resources/fonts/Inter-Regular.otf"),
    include_bytes!("../../resources/fonts/Inter-SemiBold.otf"),
    include_bytes!("../../resources/fonts/Inter-Italic.otf"),
    include_bytes!("../../resources/fonts/JetBrainsMono-Regular.ttf"),
    include_bytes!("../../resources/icons/handrail-icons.ttf"),
];

/// What colours are for.
#[derive(Debug, PartialEq)]
pub struct Roles {
    pub canvas: Color,
    pub surface: Color,
    pub raised: Color,
    pub line: Color,
    pub text: Color,
    pub muted: Color,
    pub faint: Color,
    pub accent: Color,
    pub on_accent: Color,
    pub success: Color,
    pub warning: Color,
    pub danger: Color,
    pub info: Color,
    pub code: Color,
    pub selection: Color,
    pub focus: Color,
}

/// The light roles.
pub static LIGHT: Roles = Roles {
    canvas: color!(0xFBFAF8),
    surface: color!(0xFFFFFF),
    raised: color!(0xF3F1EC),
    line: color!(0xE6E3DD),
    text: color!(0x1E1D1B),
    muted: color!(0x6B675F),
    faint: color!(0x8A857B),
    accent: color!(0x2F6B5E),
    on_accent: color!(0xFFFFFF),
    success: color!(0x2E6E3F),
    warning: color!(0x8A5A00),
    danger: color!(0xA63A2B),
    info: color!(0x41607A),
    code: color!(0xF5F3EF),
    selection: color!(0xCFE3DC),
    focus: color!(0x2F6B5E),
};

/// The dark roles.
pub static DARK: Roles = Roles {
    canvas: color!(0x161715),
    surface: color!(0x1D1F1C),
    raised: color!(0x262824),
    line: color!(0x30332F),
    text: color!(0xECEBE6),
    muted: color!(0xA19E95),
    faint: color!(0x7F7C74),
    accent: color!(0x6FBFA9),
    on_accent: color!(0x0F1F1A),
    success: color!(0x86C294),
    warning: color!(0xE0B05A),
    danger: color!(0xE58A78),
    info: color!(0x9AB6CC),
    code: color!(0x1A1C19),
    selection: color!(0x2E4A42),
    focus: color!(0x6FBFA9),
};

/// The roles behind a theme.
#[must_use]
pub fn roles(theme: &Theme) -> &'static Roles {
    if theme.extended_palette().is_dark { &DARK } else { &LIGHT }
}

/// The theme of the light or the dark roles.
#[must_use]
pub fn theme(dark: bool) -> Theme {
    let (name, roles) = if dark { ("Handrail dark", &DARK) } else { ("Handrail light", &LIGHT) };
    let palette = Palette {
        background: roles.canvas,
        text: roles.text,
        primary: roles.accent,
        success: roles.success,
        warning: roles.warning,
        danger: roles.danger,
    };
    Theme::custom(name, palette)
}

/// How Markdown looks.
#[must_use]
pub fn markdown(roles: &Roles) -> markdown::Style {
    markdown::Style {
        text: roles.text,
        muted: roles.muted,
        link: roles.accent,
        line: roles.line,
        code_background: roles.code,
        font: SANS,
        bold: STRONG,
        italic: ITALIC,
        mono: MONO,
        size: size::BODY.0,
        line_height: size::BODY.1,
        code_size: size::CODE.0,
        code_line_height: size::CODE.1,
        radius: radius::CONTROL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(color: Color) -> f32 {
        let channel = |value: f32| if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) };
        0.2126 * channel(color.r) + 0.7152 * channel(color.g) + 0.0722 * channel(color.b)
    }

    fn contrast(a: Color, b: Color) -> f32 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_is_readable_on_every_ground_in_both_themes() {
        for roles in [&LIGHT, &DARK] {
            for ground in [roles.canvas, roles.surface, roles.raised, roles.code] {
                for text in [roles.text, roles.muted, roles.accent, roles.success, roles.warning, roles.danger, roles.info] {
                    assert!(contrast(text, ground) >= 4.5, "{text:?} on {ground:?}: {}", contrast(text, ground));
                }
                assert!(contrast(roles.faint, ground) >= 3.0, "faint on {ground:?}: {}", contrast(roles.faint, ground));
            }
            assert!(contrast(roles.on_accent, roles.accent) >= 4.5);
        }
    }

    #[test]
    fn themes_lead_back_to_their_roles() {
        assert_eq!(roles(&theme(true)), &DARK);
        assert_eq!(roles(&theme(false)), &LIGHT);
    }
}
