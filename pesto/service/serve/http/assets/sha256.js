// The SHA-256 of bytes (FIPS 180-4): browsers have one of their own where the page came over a safe connection alone.
async function sha256(bytes) {
  const own = globalThis.crypto && crypto.subtle;
  return hex(own ? new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)) : hashed(bytes));
}

const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

function primes(most) {
  const found = [];
  for (let n = 2; found.length < most; n += 1) if (found.every((p) => n % p)) found.push(n);
  return found;
}

// The first 32 bits of the fraction of a root.
const fraction = (root) => ((root - Math.floor(root)) * 2 ** 32) | 0;

function hashed(bytes) {
  const rounds = Int32Array.from(primes(64), (p) => fraction(Math.cbrt(p)));
  const state = Int32Array.from(primes(8), (p) => fraction(Math.sqrt(p)));
  const whole = bytes.length - bytes.length % 64, rest = bytes.subarray(whole);
  const last = new Uint8Array(rest.length < 56 ? 64 : 128), words = new DataView(last.buffer);
  last.set(rest);
  last[rest.length] = 128;
  words.setUint32(last.length - 8, Math.floor(bytes.length / 2 ** 29));
  words.setUint32(last.length - 4, (bytes.length * 8) >>> 0);
  blocks(state, rounds, bytes.subarray(0, whole));
  blocks(state, rounds, last);
  const out = new DataView(new ArrayBuffer(32));
  state.forEach((word, k) => out.setInt32(4 * k, word));
  return new Uint8Array(out.buffer);
}

function blocks(state, rounds, bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length), w = new Int32Array(64);
  const turn = (x, n) => (x >>> n) | (x << (32 - n));
  for (let at0 = 0; at0 < bytes.length; at0 += 64) {
    for (let k = 0; k < 16; k += 1) w[k] = view.getInt32(at0 + 4 * k);
    for (let k = 16; k < 64; k += 1) {
      const x = w[k - 15], y = w[k - 2];
      w[k] = w[k - 16] + (turn(x, 7) ^ turn(x, 18) ^ (x >>> 3)) + w[k - 7] + (turn(y, 17) ^ turn(y, 19) ^ (y >>> 10));
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let k = 0; k < 64; k += 1) {
      const one = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + rounds[k] + w[k]) | 0;
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((word, k) => { state[k] = (state[k] + word) | 0; });
  }
}
