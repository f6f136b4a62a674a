/** Loads from many client addresses: workers share clients out by these. */
import { unitsOf, type DataLoad, type LoadRun, type Sample } from '../data/loads/load.ts';
import { runOwn } from '../data/loads/own.ts';
import { readWrk, wrkWords } from '../data/loads/wrk.ts';
import type { DataNetwork } from '../data/network.ts';
import { runProgram } from '../data/program.ts';
import { cpuUse } from '../support/process-usage.ts';

/** Client addresses of every load. */
export const CLIENTS = 16;

/** One wrk for each address, all at once. */
async function manyWrk(
  network: DataNetwork,
  how: LoadRun,
  connections: number,
  headers: readonly string[] = [],
): Promise<Sample> {
  const before = cpuUse(how.pids);
  const words = wrkWords(how, connections, headers);
  const within = (how.seconds + 15) * 1000;
  const outputs = await Promise.all(
    network.clientAddresses.map((_, index) =>
      runProgram(network.clientAs(index + 1, ...words), within),
    ),
  );
  const cpu = cpuUse(how.pids, before);
  const samples = outputs.map(readWrk);
  const sum = (pick: (sample: (typeof samples)[number]) => number): number =>
    samples.reduce((all, sample) => all + pick(sample), 0);
  return {
    total: sum(({ total }) => total),
    rate: sum(({ rate }) => rate),
    cpu,
    lost: sum(({ lost = 0, total }) => lost * total) / sum(({ total }) => total),
  };
}

/** What is measured, of each number of workers. */
export function scalingLoads(network: DataNetwork): DataLoad[] {
  return [
    {
      word: 'requests',
      title: `small requests, ${CLIENTS} clients with 4 connections each`,
      protocol: 'TCP',
      tool: 'wrk',
      ...unitsOf('request'),
      run: (how) => manyWrk(network, how, 4),
    },
    {
      word: 'connections',
      title: `a connection for each request, ${CLIENTS} clients`,
      protocol: 'TCP',
      tool: 'wrk',
      ...unitsOf('connection'),
      run: (how) => manyWrk(network, how, 1, ['Connection: close']),
    },
    {
      word: 'udp',
      title: `UDP round trips, ${CLIENTS} clients with 4 ports each`,
      protocol: 'UDP',
      ...unitsOf('round trip'),
      run: (how) =>
        runOwn(how, { kind: 'echo', clients: 4 * CLIENTS, from: network.clientAddresses }),
    },
  ];
}
