//! A date and time of day, and its formats in the manner of `strftime`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// A point in time on the Gregorian calendar, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateTime {
    /// Days since 1970-01-01.
    days: i64,
    year: i64,
    /// 1 to 12.
    month: u32,
    /// 1 to 31.
    day: u32,
    /// Second of the day.
    second: u32,
}

impl DateTime {
    /// Seconds since 1970-01-01 00:00:00 UTC, leap seconds not counted.
    pub fn from_unix(seconds: i64) -> DateTime {
        let (days, second) = (
            seconds.div_euclid(86_400),
            seconds.rem_euclid(86_400) as u32,
        );
        // Years that start in March have their leap day last, and every 400 of them have 146 097 days.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * from_march + 2) / 5 + 1) as u32;
        let month = (if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        }) as u32;
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        DateTime {
            days,
            year,
            month,
            day,
            second,
        }
    }

    /// The system's time.
    pub fn now() -> DateTime {
        // A clock before 1970 is not set; its time is as good as any.
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_secs());
        DateTime::from_unix(i64::try_from(seconds).unwrap_or(0))
    }

    /// The system's time as RFC 3339 has it, in UTC, to the millisecond: `2026-01-02T03:04:05.678Z`.
    pub(crate) fn now_rfc3339() -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        rfc3339(now.unwrap_or_default())
    }

    fn weekday(&self) -> usize {
        // 1970-01-01 was a Thursday.
        (self.days + 3).rem_euclid(7) as usize
    }

    fn day_of_year(&self) -> u32 {
        let leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let before =
            [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][self.month as usize - 1];
        before + self.day + u32::from(leap && self.month > 2)
    }

    /// The time in a format of `strftime`; `%-d` and its like leave out leading zeros.
    pub(super) fn format(&self, format: &str) -> Result<String, Error> {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let mut code = chars.next();
            let bare = code == Some('-');
            if bare {
                code = chars.next();
            }
            let unknown = || {
                Error::new(
                    ErrorKind::InvalidOperation,
                    format!("strftime_now: unknown format \"{format}\""),
                )
            };
            out.push_str(
                &self
                    .field(code.ok_or_else(unknown)?, bare)
                    .ok_or_else(unknown)?,
            );
        }
        Ok(out)
    }

    fn field(&self, code: char, bare: bool) -> Option<String> {
        let (hour, minute, second) = (self.second / 3600, self.second / 60 % 60, self.second % 60);
        let number = |n: u32, width: usize| {
            if bare {
                n.to_string()
            } else {
                format!("{n:0width$}")
            }
        };
        let hour12 = (hour + 11) % 12 + 1;
        let (month, weekday) = (MONTHS[self.month as usize - 1], DAYS[self.weekday()]);
        Some(match code {
            'Y' => self.year.to_string(),
            'y' => number(self.year.rem_euclid(100) as u32, 2),
            'm' => number(self.month, 2),
            'd' => number(self.day, 2),
            'e' if bare => self.day.to_string(),
            'e' => format!("{:2}", self.day),
            'j' => number(self.day_of_year(), 3),
            'H' => number(hour, 2),
            'I' => number(hour12, 2),
            'M' => number(minute, 2),
            'S' => number(second, 2),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'B' => month.to_owned(),
            'b' | 'h' => month[..3].to_owned(),
            'A' => weekday.to_owned(),
            'a' => weekday[..3].to_owned(),
            'u' => (self.weekday() + 1).to_string(),
            'w' => ((self.weekday() + 1) % 7).to_string(),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
            'D' => format!(
                "{:02}/{:02}/{:02}",
                self.month,
                self.day,
                self.year.rem_euclid(100)
            ),
            'T' => format!("{hour:02}:{minute:02}:{second:02}"),
            'R' => format!("{hour:02}:{minute:02}"),
            'Z' => "UTC".to_owned(),
            'z' => "+0000".to_owned(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

fn rfc3339(since_epoch: Duration) -> String {
    let t = DateTime::from_unix(i64::try_from(since_epoch.as_secs()).unwrap_or(0));
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        t.year,
        t.month,
        t.day,
        t.second / 3600,
        t.second / 60 % 60,
        t.second % 60,
        since_epoch.subsec_millis()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // Expected texts are those of Python's `datetime.fromtimestamp(t, UTC).strftime(f)`.
    #[test]
    fn formats() {
        let t = DateTime::from_unix(1_767_323_045);
        let f = |format: &str| t.format(format).unwrap();
        assert_eq!(f("%Y-%m-%d %H:%M:%S"), "2026-01-02 03:04:05");
        assert_eq!(
            f("%d %b %Y|%B %-d, %y|%A %a %j %u %w"),
            "02 Jan 2026|January 2, 26|Friday Fri 002 5 5"
        );
        assert_eq!(
            f("%I:%M %p %F %T %R %D %e 100%%"),
            "03:04 AM 2026-01-02 03:04:05 03:04 01/02/26  2 100%"
        );
        assert_eq!(
            rfc3339(Duration::from_millis(1_767_323_045_678)),
            "2026-01-02T03:04:05.678Z"
        );
        assert!(t.format("%Q").is_err() && t.format("%").is_err() && t.format("%-").is_err());
    }

    #[test]
    fn the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 Thursday 001"),
            (951_782_399, "2000-02-28 23:59:59 Monday 059"),
            (951_782_400, "2000-02-29 00:00:00 Tuesday 060"),
            (4_107_542_400, "2100-03-01 00:00:00 Monday 060"),
            (1_735_646_400, "2024-12-31 12:00:00 Tuesday 366"),
            (-1, "1969-12-31 23:59:59 Wednesday 365"),
        ] {
            assert_eq!(
                DateTime::from_unix(seconds).format("%F %T %A %j").unwrap(),
                text
            );
        }
    }
}
