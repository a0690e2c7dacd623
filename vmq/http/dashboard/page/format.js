// Figures for people.

const UNITS = ["", " k", " M", " G", " T"];
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function scaled(value, step, units) {
  let size = Math.abs(value);
  let place = 0;
  while (size >= step && place < units.length - 1) {
    size /= step;
    place += 1;
  }
  const digits = place === 0 && Number.isInteger(value) ? 0 : size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return [(value < 0 ? -size : size).toFixed(digits), units[place]];
}

export function count(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) < 10000) return Number.isInteger(value) ? value.toLocaleString("en") : scaled(value, 1000, UNITS)[0];
  return scaled(value, 1000, UNITS).join("");
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const [number, unit] = scaled(Math.round(value), 1024, BYTES);
  return `${number} ${unit}`;
}

export const rate = (value) => `${count(value < 10 ? Math.round(value * 10) / 10 : Math.round(value))}/s`;
export const byteRate = (value) => `${bytes(value)}/s`;
export const percent = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} %`;

export function milliseconds(value) {
  if (value >= 1000) return `${(value / 1000).toFixed(1)} s`;
  if (value >= 10) return `${Math.round(value)} ms`;
  return value >= 0.1 || value === 0 ? `${value.toFixed(1)} ms` : `${Math.round(value * 1000)} µs`;
}

export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString("en-GB");
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
