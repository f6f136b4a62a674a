import { get } from './http.ts';

/** Samples of a metrics page: name with labels, as they stand there, and value. */
export type Samples = ReadonlyMap<string, number>;

/** Reads the samples of a page in Prometheus' text format. */
export function parseMetrics(page: string): Samples {
  const samples = new Map<string, number>();
  for (const line of page.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const space = line.lastIndexOf(' ');
    samples.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  return samples;
}

/** Fetches and reads a metrics page. */
export async function fetchMetrics(url: string): Promise<Samples> {
  const { status, body } = await get(url);
  if (status !== 200) throw new Error(`${url} answered ${status}`);
  return parseMetrics(body);
}

/** Sum of all samples of a metric whose labels contain `labels`, such as `service="shop"`. */
export function sumOf(samples: Samples, metric: string, labels = ''): number {
  let sum = 0;
  for (const [key, value] of samples) {
    if ((key === metric || key.startsWith(`${metric}{`)) && key.includes(labels)) sum += value;
  }
  return sum;
}
