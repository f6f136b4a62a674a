const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
const COUNT_UNITS = ['', 'k', 'M', 'G', 'T'];

/** Three digits and a unit: `0`, `950`, `1.25k`, `31.4M`. */
export function count(value) {
  return scaled(value, COUNT_UNITS, '');
}

/** Bytes in powers of 1000: `0 B`, `1.5 kB`, `117 MB`. */
export function bytes(value) {
  return scaled(value, BYTE_UNITS, ' ');
}

function scaled(value, units, gap) {
  let rest = value;
  let unit = 0;
  while (rest >= 999.5 && unit < units.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  return `${digits(rest, unit > 0)}${gap}${units[unit]}`;
}

function digits(value, isScaled) {
  if (value >= 100 || Number.isInteger(value)) return String(Math.round(value));
  const text = value >= 10 ? value.toFixed(1) : value.toFixed(isScaled ? 2 : 1);
  return text.replace(/\.?0+$/, '') || '0';
}

/** `12 s`, `3 min 5 s`, `4 h 7 min`, `12 d 3 h`. */
export function age(seconds) {
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor(whole / 60) % 60} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor(whole / 3600) % 24} h`;
}

/** With thousands kept apart: `10,000`. */
export function whole(value) {
  return value.toLocaleString('en');
}

/** The bound of a bucket of connect times. */
export function atMost(seconds, total) {
  if (total === 0) return 'none yet';
  if (seconds === null) return 'over 2.5 s';
  return seconds < 1 ? `≤ ${seconds * 1000} ms` : `≤ ${seconds} s`;
}
