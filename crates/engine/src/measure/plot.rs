//! Step time and resident memory over the steps, as a picture that needs nothing else.

use std::fmt::Write;

use super::Measurement;

const WIDTH: f64 = 720.0;
const PANEL: f64 = 200.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const GAP: f64 = 50.0;

/// A self-contained SVG; `title` names what was measured.
pub fn svg(m: &Measurement, title: &str) -> String {
    let ms: Vec<f64> = m.steps.iter().map(|s| s.wall.as_secs_f64() * 1e3).collect();
    let mb = |of: fn(&crate::memory::probe::Rss) -> u64| -> Option<Vec<f64>> {
        m.steps
            .iter()
            .map(|s| Some(of(&s.rss?) as f64 / 1e6))
            .collect()
    };
    let height = TOP + 2.0 * (PANEL + GAP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{}</text>\n",
        escaped(title)
    );
    panel(&mut out, TOP, "ms a step", &[("", "#1f6feb", &ms)]);
    let (file, anon) = (mb(|r| r.file), mb(|r| r.anon));
    if let (Some(file), Some(anon)) = (&file, &anon) {
        let lines: [(&str, &str, &[f64]); 2] =
            [("file", "#2da44e", file), ("anonymous", "#cf222e", anon)];
        panel(&mut out, TOP + PANEL + GAP, "resident MB", &lines);
    }
    let (from, n) = (m.n_warmup as f64, ms.len().max(1) as f64);
    let x = LEFT + from / n * (WIDTH - LEFT - RIGHT);
    let _ = writeln!(
        out,
        "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#999\" stroke-dasharray=\"4 4\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#666\">steady state</text>\n</svg>",
        height - GAP,
        x + 4.0,
        TOP + 12.0
    );
    out
}

/// One diagram from zero up, its top edge at `y`: lines of a name, a colour and values.
fn panel(out: &mut String, y: f64, unit: &str, lines: &[(&str, &str, &[f64])]) {
    let most = lines
        .iter()
        .flat_map(|(_, _, v)| v.iter())
        .fold(0.0, |a: f64, &b| a.max(b));
    let top = ceiling(most);
    let bottom = y + PANEL;
    let right = WIDTH - RIGHT;
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#666\">{unit}</text>\n\
         <path d=\"M{LEFT} {y}V{bottom}H{right}\" fill=\"none\" stroke=\"#666\"/>",
        y - 6.0
    );
    for i in 0..=4 {
        let at = bottom - PANEL * f64::from(i) / 4.0;
        let value = top * f64::from(i) / 4.0;
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#666\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            format_args!("{value:.1}")
        );
    }
    for (i, (name, colour, values)) in lines.iter().enumerate() {
        let step = (right - LEFT) / values.len().max(1) as f64;
        let points: Vec<String> = values
            .iter()
            .enumerate()
            .map(|(i, v)| {
                let x = LEFT + (i as f64 + 0.5) * step;
                format!("{x:.1},{:.1}", bottom - v / top * PANEL)
            })
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            points.join(" ")
        );
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{colour}\">{name}</text>",
            right,
            y - 6.0 - 14.0 * (lines.len() - 1 - i) as f64
        );
    }
}

/// The next of 1, 2, 4, 5, 8, 10 times a power of ten.
fn ceiling(x: f64) -> f64 {
    if x <= 0.0 {
        return 1.0;
    }
    let ten = 10f64.powf(x.log10().floor());
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0];
    let fits = steps.iter().map(|s| s * ten).find(|&s| x <= s);
    fits.unwrap_or(10.0 * ten)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_above_what_they_show() {
        for (x, top) in [
            (0.0, 1.0),
            (0.9, 1.0),
            (3.1, 4.0),
            (85.0, 100.0),
            (100.0, 100.0),
        ] {
            assert!((ceiling(x) - top).abs() < 1e-9, "{x}: {}", ceiling(x));
        }
        assert_eq!(escaped("a<b&c>"), "a&lt;b&amp;c&gt;");
    }
}
