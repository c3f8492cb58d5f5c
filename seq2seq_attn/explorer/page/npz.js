/**
 * Arrays as a file of NumPy: an .npz is a zip archive, stored without compression, of one .npy per array.
 *
 * @typedef {Object} NumpyArray
 * @property {string} dtype  "<f4", "|b1" or "<U5"
 * @property {number[]} shape
 * @property {Uint8Array} bytes
 */

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, value) => {
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

/**
 * Return numbers as an array of float32.
 *
 * @param {Float32Array} values
 * @param {number[]} shape
 * @returns {NumpyArray}
 */
export function floatArray(values, shape) {
  return { dtype: "<f4", shape, bytes: new Uint8Array(values.buffer, values.byteOffset, values.byteLength) };
}

/**
 * Return zeros and ones as an array of booleans.
 *
 * @param {Uint8Array} values
 * @param {number[]} shape
 * @returns {NumpyArray}
 */
export function booleanArray(values, shape) {
  return { dtype: "|b1", shape, bytes: values };
}

/**
 * Return strings as an array of NumPy's fixed-width text.
 *
 * @param {string[]} strings
 * @returns {NumpyArray}
 */
export function stringArray(strings) {
  const points = strings.map((text) => Array.from(text, (character) => character.codePointAt(0)));
  const width = Math.max(1, ...points.map((each) => each.length));
  const units = new Uint32Array(strings.length * width);
  for (const [index, each] of points.entries()) units.set(each, index * width);
  return { dtype: `<U${width}`, shape: [strings.length], bytes: new Uint8Array(units.buffer) };
}

/**
 * Return the bytes of an .npy file, format 1.0.
 *
 * @param {NumpyArray} array
 * @returns {Uint8Array}
 */
function npyFile({ dtype, shape, bytes }) {
  const sizes = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const text = `{'descr': '${dtype}', 'fortran_order': False, 'shape': (${sizes}), }`;
  const padded = `${text.padEnd(Math.ceil((text.length + 11) / 64) * 64 - 11)}\n`;
  const file = new Uint8Array(10 + padded.length + bytes.length);
  file.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, padded.length & 255, padded.length >> 8]);
  file.set(new TextEncoder().encode(padded), 10);
  file.set(bytes, 10 + padded.length);
  return file;
}

/**
 * Return the CRC-32 of bytes.
 *
 * @param {Uint8Array} bytes
 * @returns {number}
 */
function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >>> 8);
  return (crc ^ -1) >>> 0;
}

/**
 * Return little-endian fields as bytes.
 *
 * @param {[number, 2|4][]} fields  values and their sizes
 * @returns {Uint8Array}
 */
function littleEndian(fields) {
  const bytes = new Uint8Array(fields.reduce((sum, [, size]) => sum + size, 0));
  const view = new DataView(bytes.buffer);
  let offset = 0;
  for (const [value, size] of fields) {
    if (size === 2) view.setUint16(offset, value, true);
    else view.setUint32(offset, value, true);
    offset += size;
  }
  return bytes;
}

/**
 * Return arrays as one .npz file.
 *
 * @param {Object<string, NumpyArray>} arrays
 * @returns {Blob}
 */
export function npzFile(arrays) {
  const parts = [];
  const directory = [];
  let offset = 0;
  for (const [key, array] of Object.entries(arrays)) {
    const name = new TextEncoder().encode(`${key}.npy`);
    const file = npyFile(array);
    // Version 2.0, UTF-8 names, stored, 1 January 1980.
    const common = [
      [20, 2],
      [0x0800, 2],
      [0, 2],
      [0, 2],
      [0x21, 2],
      [crc32(file), 4],
      [file.length, 4],
      [file.length, 4],
    ];
    const header = littleEndian([[0x04034b50, 4], ...common, [name.length, 2], [0, 2]]);
    const place = [
      [0, 2],
      [0, 2],
      [0, 2],
      [0, 4],
      [offset, 4],
    ];
    directory.push(littleEndian([[0x02014b50, 4], [20, 2], ...common, [name.length, 2], [0, 2], ...place]), name);
    parts.push(header, name, file);
    offset += header.length + name.length + file.length;
  }
  const size = directory.reduce((sum, part) => sum + part.length, 0);
  const count = directory.length / 2;
  const end = littleEndian([
    [0x06054b50, 4],
    [0, 2],
    [0, 2],
    [count, 2],
    [count, 2],
    [size, 4],
    [offset, 4],
    [0, 2],
  ]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}
