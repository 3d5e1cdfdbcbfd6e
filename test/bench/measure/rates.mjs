/** Calls a function again and again, one call after the other, for `milliseconds`; calls per second. */
export async function rateOf(milliseconds, call) {
  const started = performance.now();
  let calls = 0;
  let elapsed = 0;
  while (elapsed < milliseconds) {
    await call(calls++);
    elapsed = performance.now() - started;
  }
  return (calls * 1000) / elapsed;
}

/** The same with `width` calls open at a time. */
export async function rateAtOnce(width, milliseconds, call) {
  const started = performance.now();
  let calls = 0;
  const lane = async () => {
    while (performance.now() - started < milliseconds) await call(calls++);
  };
  await Promise.all(Array.from({ length: width }, lane));
  return (calls * 1000) / (performance.now() - started);
}

/** Calls a function with 0 to `count - 1`, with `width` calls open at a time; milliseconds. */
export async function timeOf(count, width, call) {
  const started = performance.now();
  let next = 0;
  const lane = async () => {
    while (next < count) await call(next++);
  };
  await Promise.all(Array.from({ length: width }, lane));
  return performance.now() - started;
}

/** The bytes in use after a garbage collection. */
export async function bytesInUse() {
  for (let i = 0; i < 4; i++) {
    globalThis.gc();
    await new Promise(setImmediate);
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
