// SPDX-License-Identifier: MIT
// `node words.js ADDON FILE [crash]`: objects (objects.cu) touched by compiled code and by file reads, in the main thread
// and in workers, while WebAssembly reads behind its memory (V8 has that from SIGSEGV) and stacks overflow.
const {Worker, isMainThread, parentPort, workerData} = require('worker_threads');
const fs = require('fs');
const [addon, file, crash] = isMainThread ? process.argv.slice(2) : workerData.given;
const words = require(addon);

// (module (memory 1) (func (export "load") (param i32) (result i32) local.get 0 i32.load))
const wasm = new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 3, 2, 1, 0, 5, 3, 1, 0, 1, 7, 8, 1, 4, 108, 111, 97, 100, 0, 0,
  10, 9, 1, 7, 0, 32, 0, 40, 2, 0, 11])));
function traps() {
  let caught = 0;
  for (let i = 0; i < 1000; ++i) {
    try {
      wasm.exports.load(1 << 30);
    } catch (error) {
      caught += error instanceof WebAssembly.RuntimeError;
    }
  }
  return caught;
}
function overflows() {
  const deeper = depth => deeper(depth + 1) + 1;
  try {
    return deeper(1) === 0;
  } catch (error) {
    return error instanceof RangeError;
  }
}
function use(seed) {
  const buffer = words.make(), view = new Uint32Array(buffer);
  let wrong = 0, garbage;
  for (let round = 0; round < 3; ++round) {
    for (let i = 0; i < view.length; ++i) view[i] = i * seed;
    words.add(buffer, round);
    for (let i = 0; i < view.length; ++i) {
      wrong += view[i] !== i * seed + round;
      if (i % 512 == 0) garbage = new Array(5000).fill(i);
    }
    wrong += words.round(buffer, seed) + (traps() !== 1000) + !overflows();
  }
  const bytes = fs.statSync(file).size;
  wrong += fs.readSync(fs.openSync(file), new Uint8Array(buffer), 12288, bytes, 0) !== bytes;
  words.add(buffer, 1);
  for (let i = 0; i < bytes / 4; ++i) wrong += view[3072 + i] !== i + 1;
  return wrong + (garbage.length !== 5000);
}

if (!isMainThread) {
  parentPort.postMessage(use(workerData.seed));
} else {
  if (crash) {
    fs.writeSync(1, `${use(3)} wrong, crashes\n`);
    words.crash();
  }
  console.log(traps(), overflows(), use(3), 'wrong', traps(), overflows());
  for (const seed of [5, 7, 9]) {
    new Worker(__filename, {workerData: {seed, given: process.argv.slice(2)}})
        .on('message', wrong => console.log(wrong, 'wrong in a worker', traps()))
        .on('error', error => console.log(error.message));
  }
}
