/**
 * Waits until a condition holds, looking again at every turn of the event loop. Rejects after the
 * deadline, which is generous: it only decides how long a failing test takes.
 */
export async function until(condition: () => boolean, deadlineMs = 20_000): Promise<void> {
  const end = performance.now() + deadlineMs;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`still not so: ${condition.toString()}`);
    await new Promise(setImmediate);
  }
}
