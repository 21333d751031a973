//! Progress of a fit: a bar on a terminal, plain lines elsewhere, or JSON.

use crate::options::{Common, ProgressStyle};
use crate::print::visible;
use crate::signals::Signals;
use crate::words;
use indicatif::{ProgressBar, ProgressStyle as BarStyle};
use issfa::fit::Observer;
use issfa::run::trace::TraceRow;
use issfa::summary::text::duration;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Shows a fit to a person or a program.
pub struct Progress {
    view: View,
    signals: Signals,
    quiet: bool,
}

enum View {
    Nothing,
    Bar(ProgressBar),
    Plain { last: Option<Instant> },
    Json,
}

impl Progress {
    pub fn new(common: &Common, signals: Signals) -> Progress {
        let style = match common.progress {
            ProgressStyle::Auto if std::io::stderr().is_terminal() => ProgressStyle::Bar,
            ProgressStyle::Auto => ProgressStyle::Plain,
            given => given,
        };
        let view = match style {
            _ if common.quiet => View::Nothing,
            ProgressStyle::Bar => View::Bar(bar()),
            ProgressStyle::Json => View::Json,
            _ => View::Plain { last: None },
        };
        Progress { view, signals, quiet: common.quiet }
    }

    /// Takes the bar off the screen.
    pub fn finish(&self) {
        if let View::Bar(bar) = &self.view {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let style = BarStyle::with_template("{bar:30} {pos}/{len} {msg}").expect("the template is valid");
    ProgressBar::new(0).with_style(style.progress_chars("=> "))
}

impl Observer for Progress {
    fn sweep(&mut self, row: &TraceRow, total: u64, left: Duration) {
        let figures = format!(
            "K {} noise {:.4} {:.3} s/sweep, {} left",
            row.n_features,
            row.noise_variance,
            row.seconds,
            duration(left)
        );
        match &mut self.view {
            View::Nothing => {}
            View::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(row.sweep);
                bar.set_message(if row.chain > 1 { format!("chain {} {figures}", row.chain) } else { figures });
            }
            View::Plain { last } => {
                let due = last.is_none_or(|last| last.elapsed() >= PLAIN_EVERY) || row.sweep == total;
                if due {
                    err!("chain {} sweep {}/{total} {figures}", row.chain, row.sweep);
                    *last = Some(Instant::now());
                }
            }
            View::Json => out!(
                "{}",
                serde_json::json!({
                    "chain": row.chain, "sweep": row.sweep, "sweeps": total, "n_features": row.n_features,
                    "noise_variance": row.noise_variance, "theta": row.theta, "ln_likelihood": row.ln_likelihood,
                    "heldout_residual": row.heldout_residual, "seconds": row.seconds,
                    "seconds_left": left.as_secs_f64(),
                })
            ),
        }
    }

    fn wants_stop(&self) -> bool {
        self.signals.came()
    }

    fn note(&mut self, text: &str) {
        let text = words::text(text);
        match &self.view {
            _ if self.quiet => {}
            View::Bar(bar) => bar.println(visible(&text)),
            _ => err!("{text}"),
        }
    }
}
