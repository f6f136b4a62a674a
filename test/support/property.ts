import * as fc from 'fast-check';

/** The part of a test that is needed here. */
interface Passing {
  pass(message: string): unknown;
}

/**
 * Each run makes the same attempts, so that only a change of the code can fail. By hand: how long other attempts are made, as
 * many as that allows. Milliseconds.
 */
const BY_HAND_MS = process.env['PROPERTY_MS'];
const SEARCH_MS = Number(BY_HAND_MS ?? 1000);
const attempts = BY_HAND_MS === undefined ? { seed: 1 } : { numRuns: Number.MAX_SAFE_INTEGER };

/**
 * Looks for a counterexample for a bounded time, and throws with the smallest one that it
 * finds. What was tried by then counts, so a slow machine tries less but does not fail. `examples` come first.
 */
export function holds<T>(t: Passing, property: fc.IProperty<T>, examples: T[] = []): void {
  const limits = { interruptAfterTimeLimit: SEARCH_MS, markInterruptAsFailure: false };
  fc.assert(property, { ...attempts, ...limits, examples });
  t.pass('no counterexample was found');
}

/**
 * The same for a property that takes time. The attempt that the time limit cuts off is waited for and counts, so that
 * a slow machine makes at least one; what it has opened would otherwise outlive the test.
 */
export async function holdsAsync<T>(
  t: Passing,
  property: fc.IAsyncProperty<T>,
  limitMs = SEARCH_MS,
): Promise<void> {
  let last: ReturnType<typeof property.run> = Promise.resolve(null);
  const run = property.run.bind(property);
  property.run = (...args) => (last = run(...args));
  const limits = { ...attempts, interruptAfterTimeLimit: limitMs, markInterruptAsFailure: false };
  const found = await fc.check(property, limits);
  if (found.counterexample !== null || (found.failed && !found.interrupted)) {
    throw new Error(fc.defaultReportMessage(found));
  }
  const failure = await last;
  if (failure !== null && 'error' in failure) throw failure.error;
  t.pass('no counterexample was found');
}

const edit = fc.record({
  does: fc.constantFrom('set', 'flip', 'insert', 'delete', 'repeat', 'splice'),
  at: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
  byte: fc.oneof(fc.nat(255), fc.constantFrom(0, 0x7f, 0x80, 0xff, 0x22, 0x5b, 0x7b)),
  length: fc.nat(16),
});

/** Bytes that are nearly one of these: with some of them changed, gone, repeated, or from another one. */
export function mutations(seeds: readonly Uint8Array[]): fc.Arbitrary<Buffer> {
  const seed = fc.constantFrom(...seeds);
  const edits = fc.array(edit, { minLength: 1, maxLength: 6 });
  return fc.tuple(seed, seed, edits).map(([first, other, steps]) => {
    let bytes = Buffer.from(first);
    for (const { does, at, byte, length } of steps) {
      const start = Math.floor(at * bytes.length);
      const end = Math.min(bytes.length, start + length);
      const [head, tail] = [bytes.subarray(0, start), bytes.subarray(end)];
      const middle = {
        set: () => Buffer.alloc(end - start, byte),
        flip: () => bytes.subarray(start, end).map((each) => each ^ byte),
        insert: () => Buffer.concat([Buffer.alloc(length, byte), bytes.subarray(start, end)]),
        delete: () => Buffer.alloc(0),
        repeat: () => Buffer.concat(Array<Buffer>(4).fill(bytes.subarray(start, end))),
        splice: () => Buffer.from(other).subarray(Math.floor(at * other.length)),
      }[does as 'set']();
      bytes = Buffer.concat([head, middle, tail]);
    }
    return bytes;
  });
}

/** Bits of text that change what YAML means. */
export const yamlBits = fc.oneof(
  fc.constantFrom('\n', '\n  ', '\n- ', '\n\n', ' ', '- ', '-', ': ', '? ', '"', "'", '#', ','),
  fc.constantFrom('{', '}', '[', ']', '&a ', '*a', '|\n', '>\n', '\t', '\r', '---\n', '...\n'),
  fc.constantFrom('%TAG ! x\n', '!', '!!str ', '<<: ', '~', '\u0000', '\u00e9', '\ufeff', '-1'),
  fc.constantFrom('a', 'v', 'null', 'x: 1\n', 'services:\n', '- service:\n', '- service: {}\n'),
);
