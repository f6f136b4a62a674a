import { join } from 'node:path';
import { runProgram } from '../program.ts';
import { PORTS } from '../ports.ts';
import type { EchoSettings } from './echo-client.ts';
import type { DataLoad, Sample } from './load.ts';

const SCRIPT = join(import.meta.dirname, 'echo-client.ts');

/** UDP round trips with the clients of this project: sockperf has one flow. */
function echo(clients: number): DataLoad {
  return {
    word: `udp-${clients}`,
    title: `UDP round trips, ${clients.toLocaleString('en')} clients`,
    protocol: 'UDP',
    tool: undefined,
    rate: { name: 'k/s', factor: 1e-3 },
    cpu: { name: 'µs/round trip', factor: 1e6 },
    async run({ address, seconds, pids, client }) {
      const settings: EchoSettings = { address, port: PORTS.echo, clients, seconds, pids };
      const words = client(process.execPath, SCRIPT, JSON.stringify(settings));
      const sample = JSON.parse(await runProgram(words, (seconds + 15) * 1000)) as Sample;
      if (sample.total === 0) throw new Error('no datagram has come back');
      return sample;
    },
  };
}

export const ECHO_LOADS: readonly DataLoad[] = [echo(64), echo(1000)];
