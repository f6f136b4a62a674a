/** `npm run bench -- state-file`: how long large state files take, and what waits meanwhile. */
import { renameSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { stringify } from 'yaml';
import { loadHasher } from '../src/api/hash.ts';
import { messageOf } from '../src/errors.ts';
import { fileInvalid, fileReadFailed } from '../src/file/events.ts';
import { fileSource } from '../src/file/source.ts';
import { Proxier } from '../src/proxier/proxier.ts';
import { createNodeEngine } from '../src/proxysocket/node/engine.ts';
import { NonePortal } from '../src/portal/address.ts';
import { PortAllocator } from '../src/portal/proxy-ports.ts';
import { feedLocalSink } from '../src/store/local-feed.ts';
import type { LocalSink } from '../src/store/local-view.ts';
import { tempFolder } from '../examples/support/temp-folder.ts';
import { Turns } from './support/turns.ts';

type Item = ReturnType<typeof item>;

interface StateFileCase {
  readonly title: string;
  readonly services: number;
  /** For each service. */
  readonly endpoints: number;
  readonly write: (items: readonly Item[]) => string;
  /** Whether what comes of it is proxied; otherwise it is only delivered. */
  readonly proxied: boolean;
}

const many = { services: 10_000, endpoints: 10, proxied: false };
const one = { services: 1, endpoints: 100_000, proxied: true };
export const json = (items: readonly Item[]): string => JSON.stringify({ services: items });
/** Item by item: a tree of all of it would take long, and much memory. */
export const block = (items: readonly Item[]): string =>
  `services:\n${items.map((each) => stringify([each])).join('')}`;

const CASES: readonly StateFileCase[] = [
  { title: '10,000 services with 10 endpoints, block style', ...many, write: block },
  { title: '10,000 services with 10 endpoints, JSON', ...many, write: json },
  { title: '1 service with 100,000 endpoints, block style, proxied', ...one, write: block },
  { title: '1 service with 100,000 endpoints, JSON, proxied', ...one, write: json },
];

const CHANGES = 4;

function item(which: number, endpoints: number, podNet = 11) {
  const address = (net: number, n: number): string => {
    return `${net}.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`;
  };
  return {
    service: {
      namespace: `team-${which % 50}`,
      name: `service-${which}`,
      labels: { app: `app-${which}` },
      ips: { clusterips: { v4: [address(10, which + 1)] } },
      ports: [{ name: 'http', protocol: 1, port: 80, targetport: 8080 }],
    },
    endpoints: Array.from({ length: endpoints }, (_, n) => ({
      podname: `pod-${which}-${n}`,
      endpoint: {
        ips: { v4: [address(podNet, which * endpoints + n + 1)] },
        portoverrides: [{ name: 'http', port: 8080 }],
      },
      conditions: { ready: true },
      topology: { node: `node-${n % 100}`, zone: 'east' },
    })),
  };
}

/** Runs every case; false when a file could not be loaded. */
export async function runStateFile(print: (line: string) => void, cases = CASES): Promise<boolean> {
  print('longest turn: the longest time that anything else in the process has to wait\n');
  for (const each of cases) {
    try {
      await run(each, print);
    } catch (error) {
      print(`FAIL  ${each.title}: ${messageOf(error)}`);
      return false;
    }
  }
  return true;
}

/** Writes the file as it is first and after each change; beforehand, to leave no garbage in between. */
function writeContents(path: string, { services, endpoints, write }: StateFileCase): void {
  const items = Array.from({ length: services }, (_, which) => item(which, endpoints));
  const pods = items[0]?.endpoints ?? [];
  for (let round = 0; round <= CHANGES; round += 1) {
    if (round > 0) pods.splice(pods.length >> 1, 0, ...item(services + round, 1, 12).endpoints);
    writeFileSync(`${path}.${round}`, write(items));
  }
}

async function run(each: StateFileCase, print: (line: string) => void): Promise<void> {
  const folder = tempFolder('state-file');
  const path = join(folder.path, 'state');
  writeContents(path, each);
  renameSync(`${path}.0`, path);
  print(`${each.title}, ${(statSync(path).size / 1e6).toFixed(0)} MB`);
  const delivery = new Delivery();
  const proxy = each.proxied ? startProxy() : undefined;
  const stop = new AbortController();
  const turns = new Turns();
  const step = async (name: string, change?: () => void): Promise<void> => {
    const delivered = delivery.next();
    change?.();
    turns.reset();
    const start = performance.now();
    await delivered;
    const seconds = (performance.now() - start) / 1000;
    await turns.one();
    print(`  ${name.padEnd(26)}${seconds.toFixed(2)} s, longest turn ${turns.longest()}`);
  };
  const sink: LocalSink = {
    async sync(change) {
      await proxy?.proxier.sync(change);
      delivery.done();
    },
  };
  const first = step('first load');
  const source = fileSource({ path });
  const done = feedLocalSink(
    { source, nodeName: 'node-1', hasher: await loadHasher() },
    sink,
    stop.signal,
  );
  try {
    await first;
    for (let round = 1; round <= CHANGES; round += 1) {
      await step('one endpoint more', () => renameSync(`${path}.${round}`, path));
    }
  } finally {
    turns.stop();
    stop.abort();
    await done;
    delivery.close();
    await proxy?.proxier.close();
    await proxy?.engine.destroy();
    folder.remove();
  }
}

function startProxy() {
  const engine = createNodeEngine();
  const portal = new NonePortal(new PortAllocator(undefined, Math.random), '127.0.0.1');
  return { engine, proxier: new Proxier({ engine, portal }) };
}

/** Waits for a change set to be taken, or for the file to be refused. */
class Delivery {
  #next = Promise.withResolvers<void>();
  readonly #refused = ({ error }: { error: Error }): void => this.#next.reject(error);

  constructor() {
    fileInvalid.subscribe(this.#refused);
    fileReadFailed.subscribe(this.#refused);
  }

  next(): Promise<void> {
    this.#next = Promise.withResolvers();
    return this.#next.promise;
  }

  done(): void {
    this.#next.resolve();
  }

  close(): void {
    fileInvalid.unsubscribe(this.#refused);
    fileReadFailed.unsubscribe(this.#refused);
  }
}
