import { join } from 'node:path';
import { PORTS } from '../ports.ts';
import { runTool, type DataLoad, type LoadRun, type Sample } from './load.ts';
import { ownConnections, ownRequests } from './own.ts';

const SCRIPT = join(import.meta.dirname, 'wrk.lua');

/** Requests with wrk: the next one of a connection as soon as the answer to the last one is there. */
function wrk(options: {
  readonly word: string;
  readonly title: string;
  readonly connections: number;
  readonly unit: string;
  readonly headers?: readonly string[];
  readonly without: (how: LoadRun) => Promise<Sample>;
}): DataLoad {
  const { word, title, connections, unit, headers = [], without } = options;
  return {
    word,
    title,
    protocol: 'TCP',
    tool: { command: 'wrk', package: 'wrk' },
    rate: { name: 'k/s', factor: 1e-3 },
    cpu: { name: `µs/${unit}`, factor: 1e6 },
    async run(how) {
      const { output, cpu } = await runTool(how, wrkWords(how, connections, headers));
      return { ...readWrk(output), cpu };
    },
    without,
  };
}

/** Its command line, with one thread. */
export function wrkWords(
  { address, seconds }: Pick<LoadRun, 'address' | 'seconds'>,
  connections: number,
  headers: readonly string[] = [],
): string[] {
  return [
    'wrk',
    '-t1',
    `-c${connections}`,
    `-d${seconds}s`,
    '-s',
    SCRIPT,
    ...headers.flatMap((header) => ['-H', header]),
    `http://${address}:${PORTS.http}/`,
  ];
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
  ...[1, 64, 512].map((connections) =>
    wrk({
      word: `requests-${connections}`,
      title: `small requests, ${connections} ${connections === 1 ? 'connection' : 'connections'} kept`,
      connections,
      unit: 'request',
      without: (how) => ownRequests(how, connections, 0),
    }),
  ),
  wrk({
    word: 'connections',
    title: 'a connection for each request, 16 at once',
    connections: 16,
    unit: 'connection',
    headers: ['Connection: close'],
    without: (how) => ownConnections(how, 16),
  }),
];
