/**
 * How evenly clients fall on workers. The kernel assigns each client address to a worker as if by chance, so it
 * is the old question of balls in bins: what share of the clients does the fullest worker get?
 */

/** The mean, and what is not exceeded nineteen times out of twenty. 1: as many as the others. */
export interface Skew {
  readonly mean: number;
  readonly p95: number;
}

/** Clients of the fullest worker, as a multiple of the mean worker's. `random` as `Math.random`. */
export function skewOf(
  clients: number,
  workers: number,
  random: () => number,
  trials = 2000,
): Skew {
  const fullest: number[] = [];
  for (let trial = 0; trial < trials; trial += 1) {
    const bins = new Uint32Array(workers);
    for (let client = 0; client < clients; client += 1) {
      const bin = Math.floor(random() * workers);
      bins[bin] = (bins[bin] ?? 0) + 1;
    }
    fullest.push((Math.max(...bins) * workers) / clients);
  }
  fullest.sort((one, other) => one - other);
  return {
    mean: fullest.reduce((sum, each) => sum + each, 0) / trials,
    p95: fullest[Math.floor(0.95 * trials)] ?? Number.NaN,
  };
}

/** A row for each number of clients, a column for each number of workers: `mean (p95)`. */
export function skewRows(): string[][] {
  const workers = [2, 8, 64];
  const random = seeded(1);
  const rows = [['clients', ...workers.map((count) => `${count} workers`)]];
  for (const clients of [4, 16, 64, 256, 1024, 16_384]) {
    const cells = workers.map((count) => {
      const { mean, p95 } = skewOf(clients, count, random, clients > 5000 ? 200 : 2000);
      return `${mean.toFixed(2)} (${p95.toFixed(2)})`;
    });
    rows.push([clients.toLocaleString('en'), ...cells]);
  }
  return rows;
}

/** The same numbers in every run (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
