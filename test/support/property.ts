import * as fc from 'fast-check';

/** The part of a test that is needed here. */
interface Passing {
  pass(message: string): unknown;
}

/**
 * Looks for a counterexample for at most three seconds, and throws with the smallest one that it
 * finds. What was tried by then counts, so a slow machine tries less but does not fail.
 */
export function holds<T>(t: Passing, property: fc.IProperty<T>): void {
  fc.assert(property, { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false });
  t.pass('no counterexample was found');
}

/**
 * The same for a property that takes time. The run that the time limit interrupts is waited for: what it
 * has opened would otherwise outlive the test, or lose its directory to the end of it.
 */
export async function holdsAsync<T>(
  t: Passing,
  property: fc.IAsyncProperty<T>,
  limitMs = 3000,
): Promise<void> {
  let last: Promise<unknown> = Promise.resolve();
  const run = property.run.bind(property);
  property.run = (...args) => {
    const result = run(...args);
    last = result.catch(() => undefined);
    return result;
  };
  await fc.assert(property, { interruptAfterTimeLimit: limitMs, markInterruptAsFailure: false });
  await last;
  t.pass('no counterexample was found');
}
