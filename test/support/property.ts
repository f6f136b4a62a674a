import * as fc from 'fast-check';

/** The part of a test that is needed here. */
interface Passing {
  pass(message: string): unknown;
}

/** How long a counterexample is looked for; more by hand. Milliseconds. */
const SEARCH_MS = Number(process.env['PROPERTY_MS'] ?? 1000);

/**
 * Looks for a counterexample for a bounded time, and throws with the smallest one that it
 * finds. What was tried by then counts, so a slow machine tries less but does not fail.
 */
export function holds<T>(t: Passing, property: fc.IProperty<T>): void {
  fc.assert(property, { interruptAfterTimeLimit: SEARCH_MS, markInterruptAsFailure: false });
  t.pass('no counterexample was found');
}

/** The same for a property that takes time. One attempt is always made, and none is cut off. */
export async function holdsAsync<T>(
  t: Passing,
  property: fc.IAsyncProperty<T>,
  limitMs = SEARCH_MS,
): Promise<void> {
  const end = performance.now() + limitMs;
  let attempts = 0;
  const run = property.run.bind(property);
  property.run = async (value) => {
    attempts += 1;
    return attempts === 1 || performance.now() < end ? run(value) : null;
  };
  await fc.assert(property);
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
