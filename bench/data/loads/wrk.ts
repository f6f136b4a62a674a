import { join } from 'node:path';
import { PORTS } from '../ports.ts';
import { runTool, unitsOf, type DataLoad, type LoadRun, type Sample } from './load.ts';
import { runOwn, type OwnWork } from './own.ts';

const SCRIPT = join(import.meta.dirname, 'wrk.lua');

/** Requests with wrk: the next one of a connection as soon as the answer to the last one is there. */
function wrk(
  word: string,
  title: string,
  unit: string,
  without: OwnWork & { readonly clients: number },
  headers: readonly string[] = [],
): DataLoad {
  return {
    word,
    title,
    protocol: 'TCP',
    tool: 'wrk',
    ...unitsOf(unit),
    async run(how) {
      const { output, cpu } = await runTool(how, wrkWords(how, without.clients, headers));
      return { ...readWrk(output), cpu };
    },
    without: (how) => runOwn(how, without),
  };
}

/** Its command line, with one thread. */
export function wrkWords(
  { address, seconds }: Pick<LoadRun, 'address' | 'seconds'>,
  connections: number,
  headers: readonly string[] = [],
): string[] {
  const line = `wrk -t1 -c${connections} -d${seconds}s http://${address}:${PORTS.http}/ -s`;
  return [...line.split(' '), SCRIPT, ...headers.flatMap((header) => ['-H', header])];
}

/** Reads what wrk.lua has written. Throws when no request was answered. */
export function readWrk(output: string): Omit<Sample, 'cpu'> {
  const line = output.split('\n').find((each) => each.startsWith('{'));
  if (line === undefined) throw new Error(`wrk: ${output.trim().slice(-300)}`);
  const { requests, us, p50, p90, p99, p999, failed } = JSON.parse(line) as Record<
    'requests' | 'us' | 'p50' | 'p90' | 'p99' | 'p999' | 'failed',
    number
  >;
  if (requests === 0) throw new Error(`wrk: no request was answered, ${failed} failed`);
  return {
    total: requests,
    rate: requests / (us / 1e6),
    latency: { p50, p90, p99, p999 },
    lost: failed / (requests + failed),
  };
}

export const WRK_LOADS: readonly DataLoad[] = [
  ...[1, 64, 512].map((clients) => {
    const title = `small requests, ${clients} ${clients === 1 ? 'connection' : 'connections'} kept`;
    return wrk(`requests-${clients}`, title, 'request', {
      kind: 'requests',
      clients,
      perSecond: 0,
    });
  }),
  wrk(
    'connections',
    'a connection for each request, 16 at once',
    'connection',
    { kind: 'connections', clients: 16 },
    ['Connection: close'],
  ),
];
