/** Greeters that can be killed and started again, and the proxy before them, which logs every connection. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { portNear } from '../../../examples/support/ports.ts';
import { startProxy } from '../../../examples/support/proxy-process.ts';
import { writeState } from '../../../examples/support/state-file.ts';
import { tempFolder } from '../../../examples/support/temp-folder.ts';
import type { GreeterSettings } from '../../peers/greeter.ts';
import { start, type Running } from '../../support/worker.ts';
import type { Life } from './verdict.ts';

const SERVICE = '127.78.4.10';
const NAMES = ['alder', 'birch', 'cedar'] as const;

export interface ChurnScene {
  readonly target: { readonly host: string; readonly port: number };
  /** Kills the endpoint whose turn it is, and starts it again; resolves when it is back. */
  killNext(): Promise<void>;
  /** Every life of every endpoint so far. */
  lives(): readonly Life[];
  proxyLog(): string;
  close(): Promise<void>;
}

/** One life, which may not have ended yet. */
interface Lived {
  readonly id: string;
  readonly address: string;
  readonly begun: number;
  readonly book: string;
  readonly process: Running<object>;
  killed: Life['killed'];
}

/** Starts all of it; ends what was started if anything fails. */
export async function openChurnScene(): Promise<ChurnScene> {
  const folder = tempFolder('churn');
  const all: Lived[] = [];
  const current = new Map<string, Lived>();
  const addresses = NAMES.map((name, index) => ({ name, address: `127.78.4.${index + 1}` }));
  const port = await portNear('TCP', 8400, [SERVICE, ...addresses.map((each) => each.address)]);
  const script = join(import.meta.dirname, '../../peers/greeter.ts');

  const begin = async (name: string, address: string): Promise<void> => {
    const id = `${name}-${all.length + 1}`;
    const book = join(folder.path, `${id}.book`);
    writeFileSync(book, '');
    const settings: GreeterSettings = { id, address, port, book };
    const begun = Date.now();
    const process = await start<object>(script, settings);
    const lived: Lived = { id, address, begun, book, process, killed: undefined };
    all.push(lived);
    current.set(name, lived);
  };
  const endAll = async (): Promise<void> => {
    await Promise.all(all.map((lived) => lived.process.kill()));
    folder.remove();
  };

  try {
    for (const { name, address } of addresses) await begin(name, address);
    const input = join(folder.path, 'state.yaml');
    const ports = [{ name: 'greet', protocol: 'TCP', port, targetPort: port } as const];
    const service = { namespace: 'integrity', name: 'churn', clusterIP: SERVICE, ports };
    writeState(input, [{ ...service, endpoints: addresses }]);
    const logFile = join(folder.path, 'proxy.log');
    const args = ['-v=4', '--logging-format=json'];
    const proxy = await startProxy({ input, args, logFile });
    let turn = 0;
    return {
      target: { host: SERVICE, port },
      async killNext() {
        const next = addresses[turn % addresses.length];
        turn += 1;
        const victim = next === undefined ? undefined : current.get(next.name);
        if (next === undefined || victim === undefined) return;
        const from = Date.now();
        await victim.process.kill();
        victim.killed = { from, until: Date.now() };
        await begin(next.name, next.address);
      },
      lives: () =>
        all.map(({ id, address, begun, book, killed }) => ({
          id,
          address,
          begun,
          accepted: new Set(readFileSync(book, 'latin1').split('\n')),
          killed,
        })),
      proxyLog: () => readFileSync(logFile, 'utf8'),
      async close() {
        await proxy.stop();
        await endAll();
      },
    };
  } catch (error) {
    await endAll();
    throw error;
  }
}
