/**
 * Colours: the theme's, a sequential scale of one hue for weights, a diverging one for differences and signed weights.
 *
 * Lightness alone orders the sequential scale, and blue against orange the diverging one, so both are safe for colour
 * blindness. The head colours are those of Okabe and Ito (2008), adapted to each theme.
 *
 * @typedef {Object} Scale
 * @property {number} minimum
 * @property {number} maximum
 * @property {Uint32Array} pixels  256 colours as ImageData holds them
 * @property {(values: Float32Array, hidden: Uint8Array|null, pixels: Uint32Array) => void} paint  colours values;
 *   hidden ones are transparent
 * @property {(value: number) => string} css
 * @property {(value: number) => string} ink  a colour of text that is readable on a value's colour
 */

const SEQUENTIAL = {
  light: ["#f5f8fc", "#d3e2f2", "#9fc1e3", "#5f97cd", "#2a69ae", "#0a3a78"],
  dark: ["#1c232d", "#20405f", "#2a6499", "#4e91cb", "#97c5ee", "#f0f8ff"],
};
const DIVERGING = {
  light: ["#8f3a02", "#d9751c", "#f6c48c", "#f7f7f7", "#9fc1e3", "#2f6fb3", "#0a3a78"],
  dark: ["#ffc38a", "#e08a3c", "#80471b", "#20262f", "#275681", "#5f9fd9", "#c3e1fb"],
};
const HEAD_COLOURS = {
  light: ["#0072b2", "#d55e00", "#00795a", "#a8437f", "#8a6d00", "#2f8cc4", "#5b4bb5", "#555555"],
  dark: ["#5fb3ee", "#ff9a4d", "#3fc79f", "#e58fc2", "#e3c64f", "#8fd0f5", "#b0a4ff", "#c0c0c0"],
};

/** @returns {"light"|"dark"} */
export function currentTheme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/**
 * Return a colour of explorer.css: "ink", "muted", "line", "surface", "accent", …
 *
 * @param {string} name
 * @returns {string}
 */
export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/**
 * Return the colour of a head in the view of lines.
 *
 * @param {number} head
 * @returns {string}
 */
export function headColour(head) {
  const colours = HEAD_COLOURS[currentTheme()];
  return colours[head % colours.length];
}

/**
 * Return 256 colours interpolated between stops.
 *
 * @param {string[]} stops
 * @returns {number[][]}
 */
function ramp(stops) {
  const colours = stops.map((stop) => [1, 3, 5].map((start) => parseInt(stop.slice(start, start + 2), 16)));
  return Array.from({ length: 256 }, (_, index) => {
    const position = (index / 255) * (stops.length - 1);
    const left = Math.min(Math.floor(position), stops.length - 2);
    return colours[left].map((part, channel) =>
      Math.round(part + (position - left) * (colours[left + 1][channel] - part)),
    );
  });
}

/**
 * Return the scale of weights from `minimum` to `maximum`: diverging around 0 if some are negative.
 *
 * @param {number} minimum
 * @param {number} maximum
 * @returns {Scale}
 */
export function weightScale(minimum, maximum) {
  const signed = minimum < 0;
  const top = (signed ? Math.max(-minimum, maximum) : maximum) || 1;
  const bottom = signed ? -top : 0;
  const colours = ramp((signed ? DIVERGING : SEQUENTIAL)[currentTheme()]);
  const pixels = Uint32Array.from(colours, ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red);
  const factor = 255 / (top - bottom);
  const index = (value) => Math.max(0, Math.min(255, Math.round((value - bottom) * factor))) || 0;
  const css = (value) => `rgb(${colours[index(value)].join(", ")})`;
  const ink = (value) => {
    const [red, green, blue] = colours[index(value)].map((part) => (part / 255) ** 2.2);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.19 ? "#0f141b" : "#ffffff";
  };
  const paint = (values, hidden, painted) => {
    for (let cell = 0; cell < values.length; cell++) {
      if (hidden?.[cell]) continue;
      const position = ((values[cell] - bottom) * factor + 0.5) | 0;
      painted[cell] = pixels[position < 0 ? 0 : position > 255 ? 255 : position];
    }
  };
  return { minimum: bottom, maximum: top, pixels, paint, css, ink };
}
