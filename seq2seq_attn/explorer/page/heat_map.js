/**
 * A weight map on a canvas: queries down, keys across.
 *
 * The weights become an image of one pixel per cell, which is scaled without smoothing, so 512 × 512 cells cost one
 * drawImage. The canvas is as large as the visible part and stays in place while a spacer scrolls under it; only
 * visible labels are drawn. What is hidden is hatched. The time of the first drawing is in `data-draw-ms` of <html>.
 *
 * @typedef {import("./look.js").WeightMap} WeightMap
 *
 * @typedef {Object} HeatMapOptions
 * @property {string} label  for screen readers
 * @property {string} rowName  what a row is: "target word"
 * @property {string} columnName
 * @property {number} [row]  outlined row; -1: none
 * @property {(row: number) => void} [onRow]  called with a row that is clicked
 * @property {import("./colour.js").Scale} [scale]
 * @property {number} [height]  the largest height, in pixels
 * @property {import("./links.js").Block[]} [blocks]  cells that are outlined, as links
 * @property {number} [started]  when the drawing of the view began, by performance.now()
 */
import { themeColour, weightScale } from "./colour.js";
import { announce, element, isolated, number, showTooltip } from "./dom.js";
import { isInside } from "./links.js";

const LONGEST_LABEL = 130;
const SMALLEST_LABELLED_CELL = 12;
const SLOPE = Math.PI / 4;

/**
 * Return a canvas with one pixel per cell.
 *
 * @param {WeightMap} map
 * @param {(pixels: Uint32Array) => void} paint  fills the cells' colours as ImageData holds them
 * @returns {HTMLCanvasElement}
 */
function onePixelPerCell(map, paint) {
  const canvas = element("canvas", { width: map.columns.length, height: map.rows.length });
  const image = new ImageData(map.columns.length, map.rows.length);
  paint(new Uint32Array(image.data.buffer));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/**
 * Return the image of a map, without labels. Hidden cells are transparent.
 *
 * @param {WeightMap} map
 * @param {import("./colour.js").Scale} scale
 * @returns {HTMLCanvasElement}
 */
export function weightImage(map, scale) {
  return onePixelPerCell(map, (pixels) => scale.paint(map.values, map.hidden, pixels));
}

/**
 * Return the image of the cells that are hidden, opaque, or null if none is.
 *
 * @param {WeightMap} map
 * @returns {HTMLCanvasElement|null}
 */
function hiddenImage(map) {
  if (!map.hidden?.includes(1)) return null;
  return onePixelPerCell(map, (pixels) => {
    for (let cell = 0; cell < pixels.length; cell++) pixels[cell] = map.hidden[cell] ? 0xffffffff : 0;
  });
}

/**
 * Return the tile of the hatching of hidden cells.
 *
 * @returns {HTMLCanvasElement}
 */
function hatchTile() {
  const tile = element("canvas", { width: 6, height: 6 });
  const context = tile.getContext("2d");
  context.strokeStyle = themeColour("hatch");
  context.lineWidth = 1;
  context.beginPath();
  for (const start of [-3, 3, 9]) {
    context.moveTo(start - 4, 7);
    context.lineTo(start + 4, -1);
  }
  context.stroke();
  return tile;
}

/**
 * Return a legend: the colours of a scale with its ends.
 *
 * @param {import("./colour.js").Scale} scale
 * @param {boolean} hatched  whether some cells are hidden
 * @returns {HTMLElement}
 */
export function legend(scale, hatched) {
  const bar = element("canvas", { width: 128, height: 1, class: "legend-bar", "aria-hidden": "true" });
  const image = new ImageData(128, 1);
  new Uint32Array(image.data.buffer).set(scale.pixels.filter((_, index) => index % 2));
  bar.getContext("2d").putImageData(image, 0, 0);
  const parts = [element("span", { text: number(scale.minimum, 2) }), bar];
  parts.push(element("span", { text: number(scale.maximum, 2) }));
  if (hatched) {
    const swatch = element("canvas", { width: 18, height: 12, class: "legend-hatch", "aria-hidden": "true" });
    const context = swatch.getContext("2d");
    context.fillStyle = context.createPattern(hatchTile(), "repeat");
    context.fillRect(0, 0, 18, 12);
    parts.push(swatch, element("span", { text: "may not attend" }));
  }
  return element("div", { class: "legend", "data-testid": "legend" }, ...parts);
}

/** A heat map in the page. */
export class HeatMap {
  /**
   * @param {HTMLElement} container
   * @param {WeightMap} map
   * @param {HeatMapOptions} options
   */
  constructor(container, map, options) {
    const started = performance.now();
    this.map = map;
    this.options = options;
    this.row = options.row ?? -1;
    this.cursor = null;
    this.zoom = null;
    this.scale = options.scale ?? weightScale(map.minimum, map.maximum);
    this.image = weightImage(map, this.scale);
    this.hiddenImage = hiddenImage(map);
    this.hatch = this.hiddenImage && hatchTile();
    this.layer = element("canvas");

    this.canvas = element("canvas", { "data-testid": "heat-canvas", "aria-hidden": "true" });
    this.space = element("div", { class: "heat-space" }, this.canvas);
    this.view = element(
      "div",
      {
        class: "heat-view",
        tabindex: "0",
        role: "application",
        "aria-roledescription": "heat map",
        "aria-label": `${options.label}. Arrow keys move between cells, plus and minus zoom.`,
        "data-testid": "heat-view",
        scroll: () => this.drawSoon(),
        keydown: (event) => this.onKey(event),
        pointermove: (event) => this.onPointer(event),
        pointerleave: () => this.setCursor(null),
        blur: () => this.setCursor(null),
        click: (event) => this.onClick(event),
      },
      this.space,
    );
    const zoom = (text, label, factor) =>
      element("button", {
        type: "button",
        class: "small",
        "aria-label": label,
        text,
        click: () => this.zoomBy(factor),
      });
    const tools = element(
      "div",
      { class: "heat-tools" },
      legend(this.scale, this.hiddenImage !== null),
      element("span", { class: "spring" }),
      zoom("\u2212", "Smaller cells", 1 / 1.4),
      zoom("+", "Larger cells", 1.4),
      zoom("Fit", "Fit all cells", 0),
    );
    container.append(element("div", { class: "heat-map", "data-testid": "heat-map" }, tools, this.view));
    this.layOut();
    this.draw();
    document.documentElement.dataset.drawMs = (performance.now() - (options.started ?? started)).toFixed(1);
    let width = this.view.clientWidth;
    new ResizeObserver(() => {
      if (this.view.clientWidth === width) return;
      width = this.view.clientWidth;
      this.layOut();
      this.draw();
    }).observe(this.view);
  }

  /** Choose the size of cells and of labels for the width that there is. */
  layOut() {
    const { rows, columns } = this.map;
    const context = this.canvas.getContext("2d");
    this.font = `13px ${getComputedStyle(this.view).fontFamily}`;
    context.font = this.font;
    this.left = Math.ceil(widestLabel(context, rows)) + 14;
    const columnWidth = widestLabel(context, columns);
    const width = this.view.clientWidth || 600;
    this.flat = columnWidth + 8 <= Math.min(44, (width - this.left) / columns.length);
    const overhang = this.flat ? 2 : Math.max(2, Math.ceil(columnWidth * Math.cos(SLOPE)) - 4);
    const fit = (width - this.left - overhang) / columns.length;
    const heightLimit = this.options.height ?? Math.max(320, innerHeight * 0.72);
    if (this.zoom === "fit") {
      this.cell = Math.max(1, Math.min(fit, (heightLimit - 90) / rows.length));
    } else {
      const fitBoth = Math.min(fit, Math.max(24, (heightLimit - 90) / rows.length));
      this.cell = this.zoom ?? Math.max(16, Math.min(44, Math.floor(fitBoth)));
    }
    this.flat &&= columnWidth + 8 <= this.cell;
    this.top = this.flat ? 28 : Math.ceil(columnWidth * Math.sin(SLOPE)) + 18;
    const total = {
      width: this.left + columns.length * this.cell + overhang,
      height: this.top + rows.length * this.cell,
    };
    this.space.style.width = `${total.width}px`;
    this.space.style.height = `${total.height + 2}px`;
    const scrolls = total.width > width;
    this.view.style.height = `${Math.min(total.height + (scrolls ? 18 : 4), heightLimit)}px`;
  }

  /** Draw at the next frame. */
  drawSoon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  /** Draw the visible part. */
  draw() {
    const { canvas, view, cell, left, top, map } = this;
    const ratio = devicePixelRatio || 1;
    const [width, height] = [view.clientWidth, view.clientHeight];
    for (const each of [canvas, this.layer]) {
      if (each.width === Math.round(width * ratio) && each.height === Math.round(height * ratio)) continue;
      each.width = Math.round(width * ratio);
      each.height = Math.round(height * ratio);
    }
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const [x, y] = [view.scrollLeft, view.scrollTop];
    const first = { row: Math.floor(y / cell), column: Math.floor(x / cell) };
    const last = {
      row: Math.min(map.rows.length, Math.ceil((y + height - top) / cell)),
      column: Math.min(map.columns.length, Math.ceil((x + width - left) / cell)),
    };
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.save();
    context.beginPath();
    context.rect(left, top, width - left, height - top);
    context.clip();
    const count = [last.column - first.column, last.row - first.row];
    const area = [left + first.column * cell - x, top + first.row * cell - y, count[0] * cell, count[1] * cell];
    if (count[0] > 0 && count[1] > 0) {
      context.imageSmoothingEnabled = false;
      context.drawImage(this.image, first.column, first.row, ...count, ...area);
      if (this.hiddenImage) this.drawHatching(context, [first.column, first.row, ...count, ...area], x, y, ratio);
      if (cell >= 12) this.drawGrid(context, area, width, height);
    }
    this.drawBlocks(context, left - x, top - y);
    if (this.row >= 0)
      this.outline(context, left - x, top + this.row * cell - y, map.columns.length * cell, cell, "accent");
    if (this.cursor) {
      const [row, column] = this.cursor;
      this.outline(context, left + column * cell - x, top + row * cell - y, cell, cell, "ink");
    }
    context.restore();
    this.drawLabels(context, first, last, x, y, width, height);
  }

  /** Hatch the hidden cells of the visible part. */
  drawHatching(context, place, x, y, ratio) {
    const layer = this.layer.getContext("2d");
    layer.setTransform(ratio, 0, 0, ratio, 0, 0);
    layer.globalCompositeOperation = "copy";
    layer.imageSmoothingEnabled = false;
    layer.drawImage(this.hiddenImage, ...place);
    layer.globalCompositeOperation = "source-in";
    const pattern = layer.createPattern(this.hatch, "repeat");
    pattern.setTransform(new DOMMatrix().translate(-x, -y));
    layer.fillStyle = pattern;
    layer.fillRect(0, 0, this.layer.width, this.layer.height);
    context.drawImage(this.layer, 0, 0, this.layer.width / ratio, this.layer.height / ratio);
  }

  /** Part the cells by thin lines. */
  drawGrid(context, [areaLeft, areaTop, areaWidth, areaHeight], width, height) {
    context.strokeStyle = themeColour("surface");
    context.lineWidth = 1;
    context.beginPath();
    for (let x = areaLeft; x <= Math.min(areaLeft + areaWidth, width) + 1; x += this.cell) {
      context.moveTo(x, areaTop);
      context.lineTo(x, Math.min(areaTop + areaHeight, height));
    }
    for (let y = areaTop; y <= Math.min(areaTop + areaHeight, height) + 1; y += this.cell) {
      context.moveTo(areaLeft, y);
      context.lineTo(Math.min(areaLeft + areaWidth, width), y);
    }
    context.stroke();
  }

  /** Outline the cells of links, with an edge in the colour of the page around it. */
  drawBlocks(context, x, y) {
    const { cell } = this;
    const inset = cell < 8 ? 0 : 2.5;
    for (const [colour, lineWidth] of [
      ["surface", cell < 8 ? 2 : 4.5],
      ["link", cell < 8 ? 1 : 2.5],
    ]) {
      context.strokeStyle = themeColour(colour);
      context.lineWidth = lineWidth;
      for (const { row, column, rows, columns } of this.options.blocks ?? []) {
        const size = [columns * cell - 2 * inset, rows * cell - 2 * inset];
        context.strokeRect(x + column * cell + inset, y + row * cell + inset, ...size);
      }
    }
  }

  /** Outline a row or a cell. */
  outline(context, x, y, width, height, colour) {
    context.strokeStyle = themeColour(colour);
    context.lineWidth = 2;
    context.strokeRect(x + 0.5, y + 0.5, Math.max(2, width - 1), Math.max(2, height - 1));
  }

  /** Write the labels of the visible rows and columns, leaving some out where cells are small. */
  drawLabels(context, first, last, x, y, width, height) {
    const { cell, left, top, map } = this;
    const every = Math.max(1, Math.ceil(SMALLEST_LABELLED_CELL / cell));
    context.font = cell < 16 ? this.font.replace("13px", "10px") : this.font;
    context.textBaseline = "middle";
    const [ink, accent] = [themeColour("ink"), themeColour("accent")];
    const write = (item, chosen) => {
      context.fillStyle = chosen ? accent : ink;
      context.fillText(shortened(context, item.label, LONGEST_LABEL), 0, 0);
    };
    context.save();
    context.beginPath();
    context.rect(0, top, left, height - top);
    context.clip();
    context.textAlign = "right";
    for (let row = Math.ceil(first.row / every) * every; row < last.row; row += every) {
      context.save();
      context.translate(left - 8, top + (row + 0.5) * cell - y);
      write(map.rows[row], row === this.row || row === this.cursor?.[0]);
      context.restore();
    }
    context.restore();
    context.save();
    context.beginPath();
    context.rect(left - 6, 0, width - left + 6, top);
    context.clip();
    context.textAlign = this.flat ? "center" : "left";
    for (let column = Math.ceil(first.column / every) * every; column < last.column; column += every) {
      context.save();
      context.translate(left + (column + 0.5) * cell - x, top - 10);
      if (!this.flat) context.rotate(-SLOPE);
      write(map.columns[column], column === this.cursor?.[1]);
      context.restore();
    }
    context.restore();
  }

  /** Outline another row. */
  showRow(row) {
    this.row = row;
    if (row >= 0) this.scrollTo(row, null);
    this.drawSoon();
  }

  /** Enlarge the cells by a factor; 0 shows all cells at once. */
  zoomBy(factor) {
    this.zoom = factor ? Math.max(1, Math.min(80, this.cell * factor)) : "fit";
    this.layOut();
    this.drawSoon();
  }

  /** Scroll until a row and a column are visible. */
  scrollTo(row, column) {
    const { view, cell, left, top } = this;
    const within = (start, visible, position) =>
      Math.min(position * cell, Math.max(start, (position + 1) * cell - visible));
    view.scrollTop = within(view.scrollTop, view.clientHeight - top, row);
    if (column !== null) view.scrollLeft = within(view.scrollLeft, view.clientWidth - left, column);
  }

  /** Return the row and column under a point of the window, or null. */
  cellAt(clientX, clientY) {
    const box = this.view.getBoundingClientRect();
    const [x, y] = [clientX - box.left - this.left, clientY - box.top - this.top];
    if (x < 0 || y < 0) return null;
    const row = Math.floor((y + this.view.scrollTop) / this.cell);
    const column = Math.floor((x + this.view.scrollLeft) / this.cell);
    return row < this.map.rows.length && column < this.map.columns.length ? [row, column] : null;
  }

  /** Return what the tooltip and the read-out say of a cell. */
  describe([row, column]) {
    const { rows, columns, values, hidden } = this.map;
    const cell = row * columns.length + column;
    const weight = hidden?.[cell] ? "may not attend" : number(values[cell]);
    const linked = this.options.blocks?.some((block) => isInside(block, row, column)) ? "linked, " : "";
    return [`${isolated(rows[row].label)} \u2192 ${isolated(columns[column].label)}`, `${linked}${weight}`];
  }

  /** Move the cursor, with its tooltip and its read-out. */
  setCursor(cursor, x, y) {
    if (String(cursor) === String(this.cursor) && x === undefined) return;
    this.cursor = cursor;
    showTooltip(cursor && this.describe(cursor), x, y);
    this.drawSoon();
  }

  onPointer(event) {
    this.setCursor(this.cellAt(event.clientX, event.clientY), event.clientX, event.clientY);
  }

  onClick(event) {
    const cursor = this.cellAt(event.clientX, event.clientY);
    this.setCursor(cursor, event.clientX, event.clientY);
    if (cursor) this.options.onRow?.(cursor[0]);
  }

  onKey(event) {
    if (event.key === "+" || event.key === "-") return this.zoomBy(event.key === "+" ? 1.4 : 1 / 1.4);
    if (event.key === "Enter" && this.cursor) return this.options.onRow?.(this.cursor[0]);
    const { rows, columns } = this.map;
    const [row, column] = this.cursor ?? [Math.max(this.row, 0), -1];
    const moves = {
      ArrowRight: [row, column + 1],
      ArrowLeft: [row, column - 1],
      ArrowDown: [row + 1, column],
      ArrowUp: [row - 1, column],
      Home: [row, 0],
      End: [row, columns.length - 1],
      PageDown: [row + 10, column],
      PageUp: [row - 10, column],
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    const within = (items, position) => Math.max(0, Math.min(items.length - 1, position));
    this.moveTo(within(rows, moves[event.key][0]), within(columns, moves[event.key][1]));
  }

  /** Move the cursor to a cell, scroll to it and read it out. */
  moveTo(row, column) {
    this.scrollTo(row, column);
    const box = this.view.getBoundingClientRect();
    const x = box.left + this.left + (column + 0.5) * this.cell - this.view.scrollLeft;
    const y = box.top + this.top + (row + 0.5) * this.cell - this.view.scrollTop;
    this.setCursor([row, column], x, y);
    const [pair, weight] = this.describe([row, column]);
    announce(`${this.options.rowName} ${pair.replace("\u2192", `, ${this.options.columnName}`)}: ${weight}`);
  }
}

/**
 * Return the width of the widest label, up to the longest one that is drawn. Only the labels of most characters are
 * measured: measuring hundreds takes longer than drawing the map.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {import("./look.js").Item[]} items
 * @returns {number}
 */
function widestLabel(context, items) {
  const labels = items.map((item) => item.label.slice(0, 40)).sort((first, second) => second.length - first.length);
  return Math.min(LONGEST_LABEL, Math.max(...labels.slice(0, 24).map((label) => context.measureText(label).width)));
}

/**
 * Return a label cut with an ellipsis to a width.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {string} label
 * @param {number} width
 * @returns {string}
 */
function shortened(context, label, width) {
  if (label.length < 8 || context.measureText(label).width <= width) return label;
  let length = Math.min(label.length, 40);
  while (length > 1 && context.measureText(`${label.slice(0, length)}\u2026`).width > width) length--;
  return `${label.slice(0, length)}\u2026`;
}
