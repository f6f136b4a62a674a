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

/** The same for a property that takes time. */
export async function holdsAsync<T>(t: Passing, property: fc.IAsyncProperty<T>): Promise<void> {
  await fc.assert(property, { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false });
  t.pass('no counterexample was found');
}
